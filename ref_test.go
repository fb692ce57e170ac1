package main

// What people type, and what it finds.

import (
	"context"
	"strings"
	"testing"
)

func TestParseRef(t *testing.T) {
	for text, want := range map[string]int{
		"12": refNumber, "012": refNumber, "99999999999999999999": refNumber, "12.2": refAttempt, "r40": refRow, "last": refLast,
		"0123456789abcdef0123456789abcdef": refUID, "train": refName, "12.": refName, ".2": refName, "12.2.3": refName, "r": refName, "r4x": refName,
		"R40": refName, "12a": refName, "": refName, "٣": refName, "-1": refName, "1e3": refName,
	} {
		if got := parseRef(text); got.form != want {
			t.Errorf("%q: form %d, want %d", text, got.form, want)
		}
	}
}

func TestResolve(t *testing.T) {
	f := newDoors(t)
	f.node("n1")
	for _, name := range []string{"mnist-a", "mnist-b", "cifar", "same", "same", "cifar10", "a_b", "aXb"} {
		f.submit(name) // 1 .. 8
	}
	r11 := f.run(1, 1, runEnded)
	r12 := f.run(1, 2, runAlive)
	f.run(1, 0, runBurned)
	f.run(2, 1, runBurned)
	f.run(4, 0, runOffered)
	var free int64
	f.write(func(x *tx) (err error) {
		free, err = x.insert("INSERT INTO runs (uid, source, name, state, project_id) VALUES ('00000000000000000000000000000abc', 'import', 'old-import', 'IMPORTED', 1)")
		return err
	})
	jobs := []struct {
		text string
		want int64
		code string
	}{
		{"1", 1, ""},
		{"01", 1, ""},
		{"99", 0, codeNotFound},
		{"last", 8, ""},
		{"mnist-a", 1, ""},
		{"mnist", 0, codeAmbiguous},
		{"cifar", 3, ""},
		{"cifar1", 6, ""},
		{"same", 0, codeAmbiguous},
		{"a_b", 7, ""},
		{"a_", 7, ""},
		{"%", 0, codeNotFound},
		{"", 0, codeNotFound},
		{"1.1", 0, codeNotFound},
		{"r1", 0, codeNotFound},
		{"99999999999999999999", 0, codeNotFound},
		{"old-import", 0, codeNotFound},
	}
	runs := []struct {
		text string
		want int64
		code string
	}{
		{"1.1", r11, ""},
		{"1.2", r12, ""},
		{"1", r12, ""},
		{"1.3", 0, codeNotFound},
		{"2.1", 0, codeNotFound},
		{"2", 0, codeNotFound},
		{"4", 0, codeNotFound},
		{"mnist-a", r12, ""},
		{"mnist", 0, codeAmbiguous},
		{"r6", free, ""},
		{"r1", 0, codeNotFound},
		{"old", free, ""},
		{"old-import", free, ""},
		{"last", free, ""},
		{"00000000000000000000000000000abc", free, ""},
		{"ffffffffffffffffffffffffffffffff", 0, codeNotFound},
		{"99", 0, codeNotFound},
		{"x", 0, codeNotFound},
	}
	try := func(what, text string, resolve func(*conn, string) (int64, error), want int64, code string) {
		t.Helper()
		err := f.s.store.read(context.Background(), func(c *conn) error {
			got, err := resolve(c, text)
			if err == nil && got != want {
				t.Errorf("%s %q: %d, want %d", what, text, got, want)
			}
			return err
		})
		if p, ok := asProblem(err); (code == "") != (err == nil) || ok && (p.Code != code || p.Hint == "") {
			t.Errorf("%s %q: %v, want %q", what, text, err, code)
		}
		if code == codeAmbiguous && text == "same" && !strings.Contains(err.Error(), "5 same (QUEUED), 4 same (QUEUED)") {
			t.Errorf("candidates: %v", err)
		}
	}
	for _, c := range jobs {
		try("job", c.text, resolveJob, c.want, c.code)
	}
	for _, c := range runs {
		try("run", c.text, resolveRun, c.want, c.code)
	}
	var uid string
	if err := f.s.store.read(context.Background(), func(c *conn) error {
		_, err := c.one("SELECT uid FROM jobs WHERE id = 3", nil, &uid)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	try("job", uid, resolveJob, 3, "")
}
