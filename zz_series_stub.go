package main

// Stands in for semantic_metric.go until it is merged.

func metricGoal(string) string { return "" }
