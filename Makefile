# Few targets, one line each. The first build compiles SQLite: about two minutes.

.PHONY: build test check e2e soak fuzz bench release
build: ; go build -o gpuctl .
test: ; go test ./...
check: ; bash .ci/check
e2e: ; GPUCTL_SLOW=1 go test -count=1 -timeout 40m -v ./tests/
soak: ; GPUCTL_SLOW=1 GPUCTL_KILL_ROUNDS=20 go test -count=1 -timeout 120m -v -run TestKill9 ./tests/
fuzz: ; for f in $$(go test -list '^Fuzz' . | grep '^Fuzz'); do go test -run '^$$' -fuzz "^$$f$$" -fuzztime 60s . || exit 1; done
bench: ; GPUCTL_SLOW=1 go test -count=1 -timeout 20m -v -run TestBench ./tests/ && go test -run '^$$' -bench . -benchtime 200x .
release: ; for p in linux/amd64 linux/arm64 darwin/arm64; do CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} go build -trimpath -ldflags "-s -w -X main.release=$${VERSION:?say VERSION=v0.1.0}" -o dist/gpuctl-$${p%/*}-$${p#*/} . || exit 1; done
