package main

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// The longest search for one key. Histories of a round need milliseconds.
const searchTimeout = 60 * time.Second

// How many earlier operations a violation shows.
const shownBefore = 8

// The end of every history: from then on, operations without a reply have not happened. Before, they happen. That
// keeps the search short, because an operation without effect could otherwise have its place anywhere.
const (
	atEnd    = int64(1) << 61
	never    = int64(1) << 62
	theEnd   = "the end"
	notFound = "nothing"
)

// input is an operation as the search sees it; nil is the end of the history.
type input struct {
	operation *Operation
	known     bool
}

// A register holds the text of its value; values are unique, so the value stands for its revision.
var registerModel = porcupine.Model{
	Init: func() interface{} { return notFound },
	Step: func(state, in, _ interface{}) (bool, interface{}) {
		operation, known := in.(input).operation, in.(input).known
		if operation == nil {
			return true, theEnd
		}
		if state == theEnd {
			return !known, theEnd
		}
		switch operation.Op {
		case "read":
			return text(operation.Out) == state, state
		case "write":
			return true, text(operation.Value)
		case "swap":
			return !known || text(operation.Out) == state, text(operation.Value)
		}
		// cas
		matches := text(operation.From) == state
		if known && !operation.OK {
			return !matches, state
		}
		return matches, text(operation.Value)
	},
}

// checkRegister decides whether the operations on one key are linearizable.
func checkRegister(all []*Operation) error {
	if err := checkWritten(all); err != nil {
		return err
	}
	var strong []*Operation
	for _, operation := range all {
		if !operation.Weak {
			strong = append(strong, operation)
		}
	}
	strong = withoutInvisible(strong)
	switch search(strong, atEnd-1) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("no verdict after %v about %d operations", searchTimeout, len(strong))
	}
	return explain(strong)
}

// checkWritten refuses values that nobody wrote, which also covers weak reads.
func checkWritten(all []*Operation) error {
	written := map[string]*Operation{notFound: nil}
	for _, operation := range all {
		if operation.Value != nil {
			value := text(operation.Value)
			if first := written[value]; first != nil {
				return fmt.Errorf("%s is written twice, so this history cannot be checked: %v and %v", value, first, operation)
			}
			written[value] = operation
		}
	}
	for _, operation := range all {
		if !operation.known() || (operation.Op != "read" && operation.Op != "swap") {
			continue
		}
		writer, found := written[text(operation.Out)]
		if !found {
			return fmt.Errorf("a value that nobody wrote, or whose write was refused: %v", operation)
		}
		if writer != nil && writer.Op == "cas" && writer.known() && !writer.OK {
			return fmt.Errorf("a value whose write was refused: %v; %v", operation, writer)
		}
		if writer != nil && writer.Call > operation.end() {
			return fmt.Errorf("a value from the future: %v; %v", operation, writer)
		}
	}
	return nil
}

// withoutInvisible drops writes without a reply whose value nobody has seen: if there is an order with them,
// there is one without them. That does not hold where a refused cas proves that the value was another one.
func withoutInvisible(operations []*Operation) []*Operation {
	seen := map[string]bool{}
	for _, operation := range operations {
		if operation.known() && operation.Op == "cas" && !operation.OK {
			return operations
		}
		if operation.known() && operation.Out != nil {
			seen[*operation.Out] = true
		}
		if operation.Op == "cas" && operation.From != nil {
			seen[*operation.From] = true
		}
	}
	var visible []*Operation
	for _, operation := range operations {
		if operation.known() || (operation.Value != nil && seen[*operation.Value]) {
			visible = append(visible, operation)
		}
	}
	return visible
}

// search judges the history as it was known at a time: replies that came later are missing.
func search(operations []*Operation, at int64) porcupine.CheckResult {
	history := []porcupine.Operation{{Input: input{}, Call: atEnd, Return: atEnd}}
	clients := map[string]int{}
	kept := decisiveReads(operations, at)
	for _, operation := range operations {
		known := operation.known() && operation.end() <= at
		if operation.Call > at || (operation.Op == "read" && !kept[operation]) {
			continue
		}
		end := never
		if known {
			end = operation.end()
		}
		if _, found := clients[operation.Client]; !found {
			clients[operation.Client] = len(clients) + 1
		}
		history = append(history, porcupine.Operation{
			ClientId: clients[operation.Client],
			Input:    input{operation, known},
			Call:     operation.Call,
			Return:   end,
		})
	}
	return porcupine.CheckOperationsTimeout(registerModel, history, searchTimeout)
}

// decisiveReads finds the reads that all others follow from. A value is written once, so it is there for one
// period; a read says that the period begins before the read returns and ends after its call. Of all reads of a
// value, the one that returned first and the one that was called last therefore say everything. Without this,
// the many reads that wait at a server that is paused would make the search endless.
func decisiveReads(operations []*Operation, at int64) map[*Operation]bool {
	first, last := map[string]*Operation{}, map[string]*Operation{}
	kept := map[*Operation]bool{}
	deletes := false
	for _, operation := range operations {
		deletes = deletes || (operation.Op == "write" && operation.Value == nil)
	}
	for _, operation := range operations {
		if operation.Op != "read" || !operation.known() || operation.end() > at {
			continue
		}
		if operation.Out == nil && deletes {
			// There may be nothing several times.
			kept[operation] = true
			continue
		}
		value := text(operation.Out)
		if first[value] == nil || operation.end() < first[value].end() {
			first[value] = operation
		}
		if last[value] == nil || operation.Call > last[value].Call {
			last[value] = operation
		}
	}
	for value := range first {
		kept[first[value]], kept[last[value]] = true, true
	}
	return kept
}

// explain names the first reply that no order of the operations explains.
func explain(operations []*Operation) error {
	var replies []*Operation
	for _, operation := range operations {
		if operation.known() {
			replies = append(replies, operation)
		}
	}
	sort.Slice(replies, func(i, j int) bool { return replies[i].end() < replies[j].end() })
	first := sort.Search(len(replies)-1, func(i int) bool {
		return search(operations, replies[i].end()) != porcupine.Ok
	})
	culprit := replies[first]
	var before []string
	for i := first - 1; i >= 0 && len(before) < shownBefore; i-- {
		before = append(before, "    "+replies[i].String())
	}
	for i := len(operations) - 1; i >= 0 && len(before) < 2*shownBefore; i-- {
		operation := operations[i]
		if operation.Call < culprit.end() && operation.end() > culprit.end() && operation != culprit {
			before = append(before, "    without a reply at that time: "+operation.String())
		}
	}
	return fmt.Errorf("no order of the operations explains this reply:\n    %v\n  replies before it, newest first:\n%s",
		culprit, strings.Join(before, "\n"))
}
