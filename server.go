package main

// The server: what belongs together and the order in which it starts and stops. Stop order: listener, long-polls, loops, database.

import (
	"log/slog"
	"time"
)

// server is one running server process.
type server struct {
	cfg   serverConfig
	log   *slog.Logger
	store *store
	hub   *hub
	inc   *incarnation

	contacts *contacts
	relay    *logRelay
	started  time.Time
	stopping chan struct{} // closed when the server stops: long-polls end
}
