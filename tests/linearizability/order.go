package main

import (
	"fmt"
	"sort"
)

// placed is an operation whose place in the order of its key is known from its reply.
type placed struct {
	operation *Operation
	place     int64
	// A read shows the state after all operations up to its place.
	isRead bool
}

// checkRealTime decides whether the order of places agrees with real time: each operation needs a moment
// between its call and its return, and the moments must not decrease from place to place. Taking the earliest
// possible moment every time is optimal, so this is exact.
func checkRealTime(all []placed) error {
	sort.SliceStable(all, func(i, j int) bool {
		if all[i].place != all[j].place {
			return all[i].place < all[j].place
		}
		return !all[i].isRead && all[j].isRead
	})
	// The latest call so far, and the latest among those that come before the reads of this place.
	var latest, base *Operation
	for i, one := range all {
		if i == 0 || !one.isRead || all[i-1].place != one.place || !all[i-1].isRead {
			base = latest
		}
		if base != nil && base.Call > one.operation.end() {
			return fmt.Errorf("the first of these has a later place in the order, although it ended before the second began:\n    %v\n    %v",
				one.operation, base)
		}
		if latest == nil || one.operation.Call > latest.Call {
			latest = one.operation
		}
	}
	return nil
}

// checkCounter decides whether each increment ran exactly once, and whether the order agrees with real time.
func checkCounter(all []*Operation) error {
	byNumber := map[int64]*Operation{}
	var strong []placed
	var greatest, unknown int64
	var greatestOperation *Operation
	for _, operation := range all {
		if !operation.known() {
			if operation.Op == "increment" {
				unknown++
			}
			continue
		}
		if operation.Op == "increment" {
			if other := byNumber[operation.Number]; other != nil {
				return fmt.Errorf("two increments have the same result:\n    %v\n    %v", other, operation)
			}
			byNumber[operation.Number] = operation
		}
		if operation.Number > greatest {
			greatest, greatestOperation = operation.Number, operation
		}
		if !operation.Weak {
			strong = append(strong, placed{operation, operation.Number, operation.Op == "read"})
		}
	}
	if greatest > int64(len(byNumber))+unknown {
		return fmt.Errorf("%d increments were made, and %d more without a reply, but the counter was higher, so one ran twice:\n    %v",
			len(byNumber), unknown, greatestOperation)
	}
	return checkRealTime(strong)
}

// checkLease decides whether tokens are unique and rise.
func checkLease(all []*Operation) error {
	var grants []placed
	byToken := map[int64]*Operation{}
	for _, operation := range all {
		if !operation.known() {
			continue
		}
		if other := byToken[operation.Number]; other != nil {
			return fmt.Errorf("the same token was granted twice:\n    %v\n    %v", other, operation)
		}
		byToken[operation.Number] = operation
		grants = append(grants, placed{operation, operation.Number, false})
	}
	return checkRealTime(grants)
}
