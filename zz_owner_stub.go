package main

// Stand-ins for parts of others, dropped when these are merged: a decoder of event files that makes no points, and no look at checkpoints.

import "time"

type ownerStubDecoder struct{ off int64 }

func (d *ownerStubDecoder) reset(off int64)        { d.off = off }
func (d *ownerStubDecoder) feed(b []byte, _ int64) { d.off += int64(len(b)) }
func (d *ownerStubDecoder) flush(int64)            {}
func (d *ownerStubDecoder) clean() int64           { return d.off }
func (d *ownerStubDecoder) made() (int64, []byte)  { return 0, nil }
func (d *ownerStubDecoder) taken()                 {}
func (d *ownerStubDecoder) live() string           { return "" }

func newTBSource(src, path, _ string, read *fileReader, news func(sourceNews)) *fileSource {
	return newFileSource(src, kindPoints, path, &ownerStubDecoder{}, read, news)
}

func (a *agent) ckptLook(runDir, runSpec, bool, time.Time) error { return nil }
