package main

// What a start command names on this machine's disk: the working directory and the program. Everything that can be known to fail is found
// here, before anything is written, and is told in words that name the path.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// checkWorkingDir wants an absolute path of a folder that may be entered.
func checkWorkingDir(dir string) *claimRefuse {
	refuse := func(format string, args ...any) *claimRefuse {
		return &claimRefuse{Why: refuseNoDir, Detail: fmt.Sprintf(format, args...)}
	}
	if !filepath.IsAbs(dir) || strings.Contains(dir, "\x00") {
		return refuse("working directory %q is not an absolute path", dir)
	}
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("working directory %s does not exist", dir)
	case err != nil:
		return refuse("working directory %s: %v", dir, errors.Unwrap(err))
	case !st.IsDir():
		return refuse("working directory %s is not a folder", dir)
	case unix.Access(dir, unix.X_OK) != nil:
		return refuse("working directory %s may not be entered", dir)
	}
	return nil
}

// findProgram looks argv[0] up as execvp would with the job's PATH, from its working directory: a name with a slash is a path. It returns
// an absolute path.
func findProgram(argv []string, path, workingDir string) (string, *claimRefuse) {
	refuse := func(format string, args ...any) (string, *claimRefuse) {
		return "", &claimRefuse{Why: refuseNoExec, Detail: fmt.Sprintf(format, args...)}
	}
	if len(argv) == 0 || argv[0] == "" {
		return refuse("the command is empty")
	}
	for _, arg := range argv {
		if strings.Contains(arg, "\x00") {
			return refuse("an argument contains a NUL byte")
		}
	}
	name := argv[0]
	if strings.Contains(name, "/") {
		file := name
		if !filepath.IsAbs(file) {
			file = filepath.Join(workingDir, file)
		}
		if why := whyNotProgram(file); why != "" {
			return refuse("%s %s", file, why)
		}
		return file, nil
	}
	seen := "" // a better reason than "not found"
	for dir := range strings.SplitSeq(path, ":") {
		if !filepath.IsAbs(dir) { // empty means the working directory
			dir = filepath.Join(workingDir, dir)
		}
		file := filepath.Join(dir, name)
		why := whyNotProgram(file)
		if why == "" {
			return file, nil
		}
		if seen == "" && why != whyMissing {
			seen = file + " " + why
		}
	}
	if seen != "" {
		return refuse("%s", seen)
	}
	return refuse("%s: command not found in PATH (%s)", name, path)
}

const whyMissing = "does not exist"

// whyNotProgram says why a file cannot be executed, "" when it can. Of a script it looks at the interpreter too, which a moved venv lacks.
func whyNotProgram(file string) string {
	st, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return whyMissing
	case err != nil:
		return fmt.Sprintf("cannot be looked at: %v", errors.Unwrap(err))
	case st.IsDir():
		return "is a folder, not a program"
	case !st.Mode().IsRegular():
		return "is not a file"
	case unix.Access(file, unix.X_OK) != nil:
		return "is not executable (chmod +x, or name its interpreter)"
	}
	f, err := os.Open(file)
	if err != nil {
		return "" // executable and not readable: fine
	}
	head := make([]byte, 256)
	n, err := f.Read(head)
	if cerr := f.Close(); err != nil || cerr != nil {
		return ""
	}
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	if rest, ok := bytes.CutPrefix(line, []byte("#!")); ok {
		if words := strings.Fields(string(rest)); len(words) > 0 && filepath.IsAbs(words[0]) {
			if _, err := os.Stat(words[0]); errors.Is(err, fs.ErrNotExist) {
				return fmt.Sprintf("names an interpreter that is missing: %s", words[0])
			}
		}
	}
	return ""
}
