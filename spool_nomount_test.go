//go:build !linux

package main

import "errors"

func mountTestDisk(string, int) error { return errors.New("only on Linux") }
