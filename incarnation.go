package main

// The incarnation: which life of the control plane this is, kept in one small file beside the database, so that a restored database is known.

// incarnation is the present one.
type incarnation struct{ name string }
