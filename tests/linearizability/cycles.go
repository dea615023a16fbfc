package main

import (
	"fmt"
	"math"
	"sort"
	"strings"
)

// edge leads from an operation to one that must come after it.
type edge struct {
	to  int
	why string
}

// checkCycles decides whether the orders of all lists, taken together, agree with each other and with real
// time (strict serializability of the transactions): the operations are nodes, "comes before" is an edge, and
// a cycle is a violation.
func checkCycles(all []*Operation, lists map[string]*list) error {
	var nodes []*Operation
	number := map[*Operation]int{}
	for _, operation := range all {
		if !operation.Weak && (operation.known() || isSeen(operation, lists)) {
			number[operation] = len(nodes)
			nodes = append(nodes, operation)
		}
	}
	edges := make([][]edge, len(nodes))
	connect := func(from, to *Operation, why string) {
		if from != to {
			edges[number[from]] = append(edges[number[from]], edge{number[to], why})
		}
	}
	for _, one := range lists {
		for i := 1; i < len(one.order); i++ {
			connect(one.appends[one.order[i-1]], one.appends[one.order[i]], "its element of "+one.key+" comes before that of")
		}
	}
	for _, operation := range nodes {
		own := map[string]bool{}
		for _, step := range operation.Steps {
			if step.isAppend() {
				own[step.Append] = true
				continue
			}
			if !operation.known() {
				continue
			}
			one := lists[step.Key]
			if last := len(step.Read); last > 0 && !own[step.Read[last-1]] {
				connect(one.appends[step.Read[last-1]], operation, "its element of "+step.Key+" was read by")
			}
			if next := len(step.Read); next < len(one.order) {
				connect(operation, one.appends[one.order[next]], "its read of "+step.Key+" lacks the element of")
			}
		}
	}
	edges = withRealTime(nodes, edges)
	if cycle := findCycle(edges, len(nodes)); cycle != nil {
		var lines []string
		for _, step := range cycle {
			if step.to < len(nodes) {
				lines = append(lines, fmt.Sprintf("    %v\n      %s", nodes[step.to], step.why))
			}
		}
		return fmt.Errorf("a cycle, each of these must come before the next one, and the last one before the first:\n%s",
			strings.Join(lines, "\n"))
	}
	return nil
}

func isSeen(operation *Operation, lists map[string]*list) bool {
	for _, step := range operation.Steps {
		if step.isAppend() && lists[step.Key].places[step.Append] != 0 {
			return true
		}
	}
	return false
}

// withRealTime adds "ended before it began". A chain of instants, one for each return, saves the edges between
// all pairs.
func withRealTime(nodes []*Operation, edges [][]edge) [][]edge {
	type event struct {
		at     int64
		node   int
		isCall bool
	}
	var events []event
	for i, operation := range nodes {
		events = append(events, event{operation.Call, i, true})
		if operation.known() {
			events = append(events, event{operation.end(), i, false})
		}
	}
	// At the same instant the call counts as earlier, which claims less.
	sort.SliceStable(events, func(i, j int) bool {
		if events[i].at != events[j].at {
			return events[i].at < events[j].at
		}
		return events[i].isCall && !events[j].isCall
	})
	instant := -1
	for _, event := range events {
		if event.isCall {
			if instant >= 0 {
				edges[instant] = append(edges[instant], edge{event.node, ""})
			}
			continue
		}
		edges = append(edges, nil)
		next := len(edges) - 1
		if instant >= 0 {
			edges[instant] = append(edges[instant], edge{next, ""})
		}
		edges[event.node] = append(edges[event.node], edge{next, "ended before the beginning of"})
		instant = next
	}
	return edges
}

// findCycle returns a short cycle: each step is a node and why it comes before the next one.
func findCycle(edges [][]edge, operations int) []edge {
	component := components(edges)
	size := map[int]int{}
	for _, one := range component {
		size[one]++
	}
	shortest := math.MaxInt
	var found []edge
	for start := 0; start < operations && len(found) != 2; start++ {
		if size[component[start]] < 2 {
			continue
		}
		if cycle := cycleThrough(edges, component, start); cycle != nil && len(cycle) < shortest {
			shortest, found = len(cycle), cycle
		}
	}
	return found
}

// cycleThrough searches breadth first for the way from a node back to it.
func cycleThrough(edges [][]edge, component []int, start int) []edge {
	type arrival struct {
		from int
		why  string
	}
	arrivals := map[int]arrival{}
	queue := []int{start}
	for len(queue) > 0 {
		node := queue[0]
		queue = queue[1:]
		for _, next := range edges[node] {
			if component[next.to] != component[start] {
				continue
			}
			if _, known := arrivals[next.to]; known {
				continue
			}
			arrivals[next.to] = arrival{node, next.why}
			if next.to != start {
				queue = append(queue, next.to)
				continue
			}
			var cycle []edge
			for at := start; ; {
				step := arrivals[at]
				cycle = append([]edge{{step.from, step.why}}, cycle...)
				if at = step.from; at == start {
					return cycle
				}
			}
		}
	}
	return nil
}

// components numbers the strongly connected components (Tarjan, without recursion: chains are long).
func components(edges [][]edge) []int {
	const unvisited = -1
	count := len(edges)
	index, low, component := make([]int, count), make([]int, count), make([]int, count)
	for i := range index {
		index[i], component[i] = unvisited, unvisited
	}
	type frame struct{ node, next int }
	var stack []int
	visited, found := 0, 0
	for root := range edges {
		if index[root] != unvisited {
			continue
		}
		frames := []frame{{root, 0}}
		for len(frames) > 0 {
			top := &frames[len(frames)-1]
			node := top.node
			if top.next == 0 && index[node] == unvisited {
				index[node], low[node] = visited, visited
				visited++
				stack = append(stack, node)
			}
			if top.next < len(edges[node]) {
				to := edges[node][top.next].to
				top.next++
				if index[to] == unvisited {
					frames = append(frames, frame{to, 0})
				} else if component[to] == unvisited {
					low[node] = min(low[node], index[to])
				}
				continue
			}
			if low[node] == index[node] {
				for {
					last := stack[len(stack)-1]
					stack = stack[:len(stack)-1]
					component[last] = found
					if last == node {
						break
					}
				}
				found++
			}
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				parent := frames[len(frames)-1].node
				low[parent] = min(low[parent], low[node])
			}
		}
	}
	return component
}
