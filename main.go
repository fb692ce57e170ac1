package main

// Entry: finds the command by the name the binary was called by and its first words, and turns errors into exit codes.

func main() {}
