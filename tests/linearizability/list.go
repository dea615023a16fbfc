package main

import (
	"fmt"
	"sort"
)

// list is all that is known about one list.
type list struct {
	key string
	// The longest read, which every other one must be the beginning of.
	order   []string
	longest *Operation
	// Who appended each element, and its place in the order (from 1).
	appends map[string]*Operation
	places  map[string]int
}

// checkLists decides whether all reads of a list show the beginning of one order, whether every acknowledged
// append is in it exactly once, whether the order agrees with real time, and whether the orders of all lists
// agree with each other.
func checkLists(history *History) error {
	var all []*Operation
	for _, operation := range history.operations {
		if operation.Kind == "list" {
			all = append(all, operation)
		}
	}
	lists, err := orders(all)
	if err != nil {
		return err
	}
	keys := make([]string, 0, len(lists))
	for key := range lists {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		if err := lists[key].check(all); err != nil {
			return fmt.Errorf("list %s: %w", key, err)
		}
	}
	return checkCycles(all, lists)
}

// orders finds the order of each list from its longest read.
func orders(all []*Operation) (map[string]*list, error) {
	lists := map[string]*list{}
	for _, operation := range all {
		for _, step := range operation.Steps {
			one := lists[step.Key]
			if one == nil {
				one = &list{key: step.Key, appends: map[string]*Operation{}, places: map[string]int{}}
				lists[step.Key] = one
			}
			if step.isAppend() {
				if other := one.appends[step.Append]; other != nil {
					return nil, fmt.Errorf("list %s: %q is appended by two operations, so this history cannot be checked: %v and %v",
						step.Key, step.Append, other, operation)
				}
				one.appends[step.Append] = operation
			} else if operation.known() && (one.longest == nil || len(step.Read) > len(one.order)) {
				one.order, one.longest = step.Read, operation
			}
		}
	}
	for _, one := range lists {
		for i, element := range one.order {
			if one.places[element] != 0 {
				return nil, fmt.Errorf("list %s: %q is there twice, at %d and %d:\n    %v",
					one.key, element, one.places[element], i+1, one.longest)
			}
			if one.appends[element] == nil {
				return nil, fmt.Errorf("list %s: %q was appended by nobody, or the append was refused:\n    %v",
					one.key, element, one.longest)
			}
			one.places[element] = i + 1
		}
	}
	return lists, nil
}

// check judges one list. A history ends with a read of each list, so what the longest read lacks is lost.
func (l *list) check(all []*Operation) error {
	var strong []placed
	for _, operation := range all {
		for _, step := range operation.Steps {
			if step.Key != l.key {
				continue
			}
			if step.isAppend() {
				place := l.places[step.Append]
				if operation.known() {
					if place == 0 {
						return fmt.Errorf("an acknowledged append is lost:\n    %v\n    longest read: %v", operation, l.longest)
					}
					if step.Length != int64(place) {
						return fmt.Errorf("the reply says %d elements, but it is number %d:\n    %v\n    longest read: %v",
							step.Length, place, operation, l.longest)
					}
				}
				if place != 0 {
					strong = append(strong, placed{operation, int64(place), false})
				}
				continue
			}
			if !operation.known() {
				continue
			}
			for i, element := range step.Read {
				if l.order[i] != element {
					return fmt.Errorf("two reads do not agree on element %d, %q and %q:\n    %v\n    %v",
						i+1, element, l.order[i], operation, l.longest)
				}
				if l.appends[element].Call > operation.end() {
					return fmt.Errorf("an element from the future:\n    %v\n    %v", operation, l.appends[element])
				}
			}
			if !operation.Weak {
				strong = append(strong, placed{operation, int64(len(step.Read)), true})
			}
		}
	}
	return checkRealTime(strong)
}
