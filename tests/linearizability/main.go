// Checks histories of clients of a group: is there one order of all operations that explains every reply, and
// that agrees with real time?
//
//	linearizability FILE...     each file is one history, JSON lines; see history.go
//
// It prints figures, or the first violation in words, and exits with 1 for a violation and 2 for input that is
// no history.
//
// Invariant: a checker accepts only what it has decided. A key whose search takes too long is a violation of
// its own.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: linearizability FILE...")
		os.Exit(2)
	}
	for _, path := range os.Args[1:] {
		history, err := readHistory(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if err := check(history); err != nil {
			fmt.Printf("%s: violation: %v\n", path, err)
			os.Exit(1)
		}
		fmt.Printf("%s: %s\n", path, history.figures())
	}
}

// check returns the first violation of a history.
func check(history *History) error {
	for _, group := range history.byKey() {
		var err error
		switch group.kind {
		case "register", "document":
			err = checkRegister(group.operations)
		case "counter":
			err = checkCounter(group.operations)
		case "lease":
			err = checkLease(group.operations)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", group.kind, group.key, err)
		}
	}
	return checkLists(history)
}
