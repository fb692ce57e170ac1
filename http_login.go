package main

// Logging in: a page exchanges a token or a one-time code for a token of its own, which it keeps and sends like any other. No cookies.

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	loginMaxBytes = 4 << 10
	loginHint     = "get a new link: gpuctl ui"
)

func (s *server) postLogin(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	var req loginRequest
	if err := decodeJSON(r, loginMaxBytes, &req); err != nil {
		return err
	}
	if (req.Token == "") == (req.Code == "") {
		return newProblem(codeInvalid, `send {"token": ...} or {"code": ...}`, "a login takes either a token or a code")
	}
	parent, err := s.findLogin(r.Context(), req)
	if err != nil {
		return err
	}
	var answer loginAnswer
	status, err := s.writeAs(r, func(t *tx) (int, error) {
		if req.Code != "" {
			if parent, err = useLoginCodeTx(t, req.Code); err != nil {
				return 0, err
			}
		}
		id, a, err := mintPageTokenTx(t, parent)
		answer = a
		exchangeOf(r).caller = caller{tokenID: id, name: a.Name, scope: a.Scope} // for the audit
		return http.StatusCreated, err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, status, answer)
}

// findLogin looks what was sent up, and takes nothing yet. Of a token it gives the number.
func (s *server) findLogin(ctx context.Context, req loginRequest) (tokenID int64, err error) {
	err = s.store.read(ctx, func(c *conn) error {
		if req.Code != "" {
			found, err := codeExists(c, codeForLogin, req.Code)
			if err == nil && !found {
				err = newProblem(codeUnauthorized, loginHint, "this code is not known")
			}
			return err
		}
		k, found, err := readTokenByText(c, req.Token, time.Now())
		if err == nil && !found {
			err = newProblem(codeUnauthorized, "the admin token is admin_token in the server's "+serverYAML+"; without it: gpuctl ui", "this token is not known")
		}
		tokenID = k.tokenID
		return err
	})
	return tokenID, err
}

// useLoginCodeTx takes a code and gives the token that asked for it.
func useLoginCodeTx(t *tx, code string) (int64, error) {
	_, madeBy, err := useCodeTx(t, codeForLogin, code, loginHint)
	if err != nil {
		return 0, err
	}
	id, found, err := tokenNamedTx(t, madeBy)
	if err == nil && !found {
		err = newProblem(codeUnauthorized, loginHint, "the token that made this code is gone")
	}
	return id, err
}

func (s *server) postLoginLink(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	var none struct{}
	if err := decodeOptionalJSON(r, loginMaxBytes, &none); err != nil {
		return err
	}
	who := callerOf(r)
	var answer oneTimeCode
	status, err := s.writeAs(r, func(t *tx) (_ int, err error) {
		answer.Code, answer.ExpiresMS, err = makeCodeTx(t, codeForLogin, who.scope, who.name)
		return http.StatusCreated, err
	})
	if err != nil {
		return err
	}
	for _, base := range s.loginBases(r) {
		answer.URLs = append(answer.URLs, base+loginPath(answer.Code))
	}
	return writeJSON(w, status, answer)
}

// loginBases are the addresses at which a page can be opened: the one that this request came by, which the host check allowed, then the
// public names.
func (s *server) loginBases(r *http.Request) []string {
	bases := []string{"http://" + r.Host}
	_, port, err := net.SplitHostPort(r.Host)
	for _, name := range s.cfg.PublicHost {
		base := "http://" + name
		if _, _, perr := net.SplitHostPort(name); perr != nil && err == nil {
			base = "http://" + net.JoinHostPort(hostOnly(name), port)
		}
		if base != bases[0] {
			bases = append(bases, base)
		}
	}
	return bases
}

func (s *server) postLogout(w http.ResponseWriter, r *http.Request) error {
	if err := queryOf(r).err; err != nil {
		return err
	}
	status, err := s.writeAs(r, func(t *tx) (int, error) {
		return http.StatusNoContent, endPageTokenTx(t, callerOf(r).tokenID)
	})
	if err != nil {
		return err
	}
	w.WriteHeader(status)
	return nil
}
