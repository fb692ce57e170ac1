package main

// JSON in and out: strict decoding that says where and what, answers that are whole or not there. It knows no route.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// bodyMaxBytes is the limit of every JSON body but the agent's.
const bodyMaxBytes = 1 << 20

// writeJSON answers v. The body is built before the first byte leaves, so that a value that cannot be written is a clean error.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	return writeBody(w, status, "application/json", v)
}

func writeBody(w http.ResponseWriter, status int, contentType string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // nosniff and application/json guard it; people read it in a terminal
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// decodeJSON reads the body, one JSON object of at most max bytes, into v. Unknown fields, trailing data and broken UTF-8 are refused;
// each refusal is a problem that names the place.
func decodeJSON(r *http.Request, max int64, v any) error {
	body, err := readBody(r, max)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return newProblem(codeBadJSON, "send a JSON object", "the body is empty")
	}
	return decodeStrict(body, v)
}

// decodeOptionalJSON is decodeJSON for routes that need no body: without one v stays as it is.
func decodeOptionalJSON(r *http.Request, max int64, v any) error {
	body, err := readBody(r, max)
	if err != nil || len(body) == 0 {
		return err
	}
	return decodeStrict(body, v)
}

// readBody reads a body of at most max bytes, without white space around it, and checks its type. What curl -d sends without a header is
// taken for JSON when it begins like an object.
func readBody(r *http.Request, max int64) ([]byte, error) {
	tooLarge := newProblem(codeTooLarge, "send less", "the body is over %d bytes", max)
	if r.ContentLength > max {
		return nil, tooLarge
	}
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, max+1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, newProblem(codeBadJSON, "send it faster", "the body did not arrive within %v", bodyWithin)
	}
	if err != nil {
		return nil, newProblem(codeBadJSON, "send it again", "the body ended early")
	}
	if int64(len(body)) > max {
		return nil, tooLarge
	}
	body = bytes.TrimSpace(body)
	kind := r.Header.Get("Content-Type")
	if kind == "" || len(body) == 0 {
		return body, nil
	}
	media, _, err := mime.ParseMediaType(kind)
	if err == nil && (media == "application/json" || media == "application/x-www-form-urlencoded" && body[0] == '{') {
		return body, nil
	}
	return nil, newProblem(codeMediaType, "send Content-Type: application/json", "%q is not taken here", kind)
}

func decodeStrict(body []byte, v any) error {
	if !utf8.Valid(body) {
		return newProblem(codeBadJSON, "send UTF-8", "the body is not UTF-8")
	}
	if body[0] != '{' {
		return newProblem(codeBadJSON, "send a JSON object", "the body does not begin with {")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	dec.UseNumber() // numbers in free-form objects stay as they were written
	if err := dec.Decode(v); err != nil {
		return decodeProblem(body, v, err)
	}
	if rest := bytes.TrimSpace(body[dec.InputOffset():]); len(rest) > 0 {
		return newProblem(codeBadJSON, "send one JSON object", "there is more after the object, %s", placeIn(body, dec.InputOffset()))
	}
	return nil
}

// decodeProblem turns an error of encoding/json into one that says which field, or which place.
func decodeProblem(body []byte, v any, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return newProblem(codeBadJSON, "check the JSON", "%s: %s", placeIn(body, syntax.Offset), strings.TrimPrefix(syntax.Error(), "json: "))
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return newProblem(codeBadJSON, "send a JSON object", "%s: %s is wanted, a %s was found", placeIn(body, wrong.Offset), wantedJSON(wrong.Type), wrong.Value)
		}
		return newProblem(codeBadJSON, "correct "+wrong.Field, "field %s: %s is wanted, a %s was found", wrong.Field, wantedJSON(wrong.Type), wrong.Value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if plain, uerr := strconv.Unquote(name); uerr == nil {
			name = plain
		}
		return newProblem(codeUnknownField, "known fields: "+strings.Join(fieldNames(v), ", "), "unknown field %q", name)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return newProblem(codeBadJSON, "check the JSON", "%s: it ends too early", placeIn(body, int64(len(body))))
	}
	return newProblem(codeBadJSON, "check the JSON", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// placeIn says where a byte offset is, as people count.
func placeIn(body []byte, off int64) string {
	before := body[:min(max(off, 0), int64(len(body)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - (bytes.LastIndexByte(before, '\n') + 1)
	return fmt.Sprintf("line %d, byte %d", line, max(column, 1))
}

// wantedJSON names what a Go type takes.
func wantedJSON(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return wantedJSON(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}

// fieldNames lists the JSON names of the struct that v points to.
func fieldNames(v any) []string {
	t := reflect.TypeOf(v)
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for i := range t.Elem().NumField() {
		name, _, _ := strings.Cut(t.Elem().Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}
