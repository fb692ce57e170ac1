package main

// Stands in for the series store until it is merged.

func metricsAtStep(c *conn, runID, step int64) (map[string]jsonFloat, error) { return nil, nil }
