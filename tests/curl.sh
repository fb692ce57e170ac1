#!/bin/sh
# Submit, follow, read, cancel with nothing but curl, sed and grep. Wants URL and TOKEN in the environment.
set -eu

api() { # METHOD PATH [BODY]
	if [ $# -gt 2 ]; then
		curl -sS --max-time 40 -X "$1" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -d "$3" "$URL/api/v1$2"
	else
		curl -sS --max-time 40 -X "$1" -H "Authorization: Bearer $TOKEN" "$URL/api/v1$2"
	fi
}
id() { # the first "id" of a JSON text
	grep -o '"id": *[0-9]*' | head -1 | sed 's/.*: *//'
}
die() { echo "curl: $*" >&2; exit 1; }

# who am I
api GET /auth/whoami | grep -q '"can_write": *true' || die "whoami says that this token may not write"

# submit
job=$(api POST /jobs '{"argv":["sh","-c","echo first; sleep 1; echo second; exit 3"],"working_dir":"/tmp","gpus":0,"name":"by-curl"}' | id)
[ -n "$job" ] || die "no job id"
echo "job $job"

# follow its log until nothing more will come
after=0 tries=0
: > /tmp/curl-log.$$
trap 'rm -f /tmp/curl-log.$$' EXIT
while :; do
	page=$(api GET "/runs/$job/log?after=$after&wait=5")
	echo "$page" | grep -o '"text": *"[^"]*"' | sed 's/.*: *"\(.*\)"/\1/' >> /tmp/curl-log.$$
	next=$(echo "$page" | sed -n 's/.*"next": *\([0-9]*\).*/\1/p')
	after=${next:-$after}
	if echo "$page" | grep -q '"done": *true'; then break; fi
	tries=$((tries + 1))
	[ $tries -lt 100 ] || die "the log does not end"
	[ -n "$next" ] || sleep 0.2 # the job has no run yet
done
[ "$(cat /tmp/curl-log.$$)" = "first
second" ] || die "the log is: $(cat /tmp/curl-log.$$)"

# read: the job, its run, the raw log
api GET "/jobs/$job" | grep -q '"state": *"FAILED"' || die "the job is not FAILED"
api GET "/jobs/$job" | grep -q '"exit_code": *3' || die "the exit code is not 3"
api GET "/runs/$job.1/log/raw" | grep -q '^second$' || die "no raw log"
curl -sS -H "Authorization: Bearer $TOKEN" -H 'Range: bytes=0-4' "$URL/api/v1/runs/$job.1/log/raw" | grep -q '^first$' || die "no range of the raw log"
api GET '/events?after=0' | grep -q '"type"' || die "no events"
api GET /slots | grep -q '"lane": *"cpu"' || die "no slots"

# cancel
job=$(api POST /jobs '{"argv":["sleep","1000"],"working_dir":"/tmp","gpus":0}' | id)
tries=0
until api GET "/jobs/$job" | grep -q '"state": *"RUNNING"'; do
	tries=$((tries + 1))
	[ $tries -lt 200 ] || die "job $job does not run"
	sleep 0.1
done
api POST "/jobs/$job/cancel" '{"grace_s":1,"reason":"seen enough"}' > /dev/null
tries=0
until api GET "/jobs/$job" | grep -q '"state": *"CANCELLED"'; do
	tries=$((tries + 1))
	[ $tries -lt 200 ] || die "job $job is not CANCELLED"
	sleep 0.1
done

# an error says what to do
api GET /jobs/4711 | grep -q '"hint"' || die "an error without a hint"
echo "curl: all is well"
