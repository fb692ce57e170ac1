package main

// The incarnation: which life of the control plane this is, kept in one small file beside the database, so that a restored database is
// known. The file is written after the row and before anybody is answered.

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"
)

// incarnationFile is the file, JSON. Highest is the highest number given, by table.
type incarnationFile struct {
	Name    string            `json:"incarnation"` // "<start counter>-<64 random bits>"
	Counter int64             `json:"start_counter"`
	Grant   int64             `json:"grant_no"`
	Highest map[string]int64  `json:"highest"`
	Nodes   []incarnationNode `json:"nodes"`
}

type incarnationNode struct {
	UID         string             `json:"uid"`
	Name        string             `json:"name"`
	Fingerprint wireFingerprint    `json:"fingerprint"`
	Tokens      []incarnationToken `json:"tokens"`
}

type incarnationToken struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
	Hash string `json:"hash"` // SHA-256, hex
}

// numberedTables are those whose numbers people or agents have seen.
var numberedTables = []string{"jobs", "runs", "events", "commands"}

// incarnation is the present one.
type incarnation struct {
	path string

	mu    sync.Mutex // held while the file is written: two writers must not cross
	name  string
	file  incarnationFile // what the file holds
	stale bool            // the last save failed: the file lacks something that was committed
}

// readIncarnation reads the file; a first start has none.
func readIncarnation(path string) (*incarnation, error) {
	i := &incarnation{path: path}
	if err := readJSON(path, &i.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, newProblem(codeUnavailable, "if the file is damaged move it away; the next start then goes on without knowing of a restore",
			"%v", err)
	}
	return i, nil
}

// current is the name that every poll, batch, claim and hello answer carries.
func (i *incarnation) current() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.name
}

// known is what the file holds.
func (i *incarnation) known() incarnationFile {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.file
}

// newIncarnationName gives a new name for a start counter. The random half makes old grants worthless even when the counter went back.
func newIncarnationName(counter int64) string {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return fmt.Sprintf("%d-%s", counter, hex.EncodeToString(b[:]))
}

// beginTx is the start: is the database behind the file? Then RECOVERY, in the same transaction that raises the counter.
func (i *incarnation) beginTx(t *tx) (counter int64, err error) {
	var have, grant int64
	found, err := t.one("SELECT start_counter, grant_no FROM server_state WHERE id = 1", nil, &have, &grant)
	if err != nil {
		return 0, err
	}
	if !found {
		if _, err := t.exec("INSERT INTO server_state (id, start_counter, grant_no) VALUES (1, 0, 0)"); err != nil {
			return 0, err
		}
	}
	f := i.known()
	counter = max(have, f.Counter) + 1
	if _, err := t.exec("UPDATE server_state SET start_counter = ?, grant_no = ? WHERE id = 1", counter, max(grant, f.Grant)); err != nil {
		return 0, err
	}
	if have >= f.Counter && grant >= f.Grant {
		return counter, nil
	}
	why := fmt.Sprintf("the database was restored: it knows start %d and grant %d, the incarnation file start %d and grant %d",
		have, grant, f.Counter, f.Grant)
	return counter, beginRecoveryTx(t, f, why)
}

// set makes name the present incarnation. The file is written by save.
func (i *incarnation) set(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.name = name
}

// save writes the file anew from the database. c must not have been read from before: what it sees is fixed by its first read, which
// has to lie inside of the lock.
func (i *incarnation) save(c *conn) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stale = true
	f := incarnationFile{Name: i.name}
	if _, err := c.one("SELECT start_counter, grant_no FROM server_state WHERE id = 1", nil, &f.Counter, &f.Grant); err != nil {
		return err
	}
	f.Grant = max(f.Grant, i.file.Grant)
	var err error
	if f.Highest, err = highestNumbers(c); err != nil {
		return err
	}
	if f.Nodes, err = incarnationNodes(c); err != nil {
		return err
	}
	if err := i.writeLocked(f); err != nil {
		return err
	}
	i.stale = false
	return nil
}

// saveGrant makes sure that the file knows a grant number before the grant is answered.
func (i *incarnation) saveGrant(grant int64, highest map[string]int64) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.file.Grant >= grant {
		return nil
	}
	f := i.file
	f.Grant, f.Highest = grant, highest
	return i.writeLocked(f)
}

// writeLocked replaces the file. Numbers in it never go back.
func (i *incarnation) writeLocked(f incarnationFile) error {
	f.Highest = maps.Clone(f.Highest)
	for k, v := range i.file.Highest {
		f.Highest[k] = max(f.Highest[k], v)
	}
	f.Counter = max(f.Counter, i.file.Counter)
	b, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	if err := writeAtomic(i.path, append(b, '\n')); err != nil {
		return fmt.Errorf("write incarnation: %w", err)
	}
	i.file = f
	return nil
}

// behind reports whether the file lacks something that was committed, or lags so far behind the numbers given that a restore could give
// one twice.
func (i *incarnation) behind(highest map[string]int64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stale {
		return true
	}
	for k, v := range highest {
		if v > i.file.Highest[k]+idsSpare/10 {
			return true
		}
	}
	return false
}

func highestNumbers(c *conn) (map[string]int64, error) {
	h := map[string]int64{}
	for _, table := range numberedTables {
		var v int64
		if _, err := c.one("SELECT seq FROM sqlite_sequence WHERE name = ?", []any{table}, &v); err != nil {
			return nil, err
		}
		h[table] = v
	}
	return h, nil
}

func incarnationNodes(c *conn) ([]incarnationNode, error) {
	var out []incarnationNode
	err := c.each("SELECT id, uid, name, fingerprint FROM nodes ORDER BY id", nil, func(get func(...any) error) error {
		n := incarnationNode{Tokens: []incarnationToken{}}
		var id int64
		var print string
		if err := get(&id, &n.UID, &n.Name, &print); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(print), &n.Fingerprint); err != nil {
			return err
		}
		err := c.each("SELECT id, name, hash FROM tokens WHERE node_id = ? AND scope = 'agent' AND revoked_ms IS NULL", []any{id},
			func(get func(...any) error) error {
				var k incarnationToken
				if err := get(&k.ID, &k.Name, &k.Hash); err != nil {
					return err
				}
				n.Tokens = append(n.Tokens, k)
				return nil
			})
		out = append(out, n)
		return err
	})
	return out, err
}
