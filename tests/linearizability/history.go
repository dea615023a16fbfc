package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
)

// Operation is one line of a history.
//
// kind and op decide the other fields:
//
//	register, document   read -> out; write value; swap value -> out; cas from value -> ok
//	counter              increment -> number; read -> number
//	lease                grant -> number
//	list                 steps, executed as one transaction
//
// A value is null where the key does not exist. An operation without a reply has no return: it may have
// happened at any time after its call, or not at all. One that was refused is not in the history. A weak read
// was answered by a follower: it may be old, but it must show what is committed.
type Operation struct {
	Client string  `json:"client"`
	Server string  `json:"server"`
	Round  int     `json:"round"`
	Kind   string  `json:"kind"`
	Key    string  `json:"key"`
	Op     string  `json:"op"`
	Call   int64   `json:"call"`
	Return *int64  `json:"return"`
	Weak   bool    `json:"weak"`
	Value  *string `json:"value"`
	From   *string `json:"from"`
	Out    *string `json:"out"`
	OK     bool    `json:"ok"`
	Number int64   `json:"number"`
	Steps  []Step  `json:"steps"`
}

// Step appends a value to a list, or reads the whole list.
type Step struct {
	Key    string   `json:"key"`
	Append string   `json:"append"`
	Length int64    `json:"length"`
	Read   []string `json:"read"`
}

func (s Step) isAppend() bool { return s.Append != "" }

func (o *Operation) known() bool { return o.Return != nil }

// end is the time at which it had happened at the latest.
func (o *Operation) end() int64 {
	if o.known() {
		return *o.Return
	}
	return never
}

func text(value *string) string {
	if value == nil {
		return notFound
	}
	return fmt.Sprintf("%q", *value)
}

// String describes it for a person; times are seconds of the machine's monotonic clock.
func (o *Operation) String() string {
	var did string
	switch o.Op {
	case "read":
		did = "read " + text(o.Out)
		if o.Kind == "counter" {
			did = fmt.Sprintf("read %d", o.Number)
		}
	case "write":
		did = "wrote " + text(o.Value)
	case "swap":
		did = fmt.Sprintf("wrote %s", text(o.Value))
		if o.known() {
			did += " and got the old value " + text(o.Out)
		}
	case "cas":
		did = fmt.Sprintf("replaced %s with %s", text(o.From), text(o.Value))
		if o.known() && !o.OK {
			did = fmt.Sprintf("was refused to replace %s with %s", text(o.From), text(o.Value))
		}
	case "increment":
		did = fmt.Sprintf("incremented to %d", o.Number)
	case "grant":
		did = fmt.Sprintf("was granted token %d", o.Number)
	case "steps":
		var parts []string
		for _, step := range o.Steps {
			if step.isAppend() {
				parts = append(parts, fmt.Sprintf("appended %q to %s", step.Append, step.Key))
			} else {
				parts = append(parts, fmt.Sprintf("read %d elements of %s", len(step.Read), step.Key))
			}
		}
		did = strings.Join(parts, " and ")
	}
	ended := "without a reply"
	if o.known() {
		ended = fmt.Sprintf("to %.6f s", float64(*o.Return)/1e9)
	}
	return fmt.Sprintf("client %s at server %s in round %d %s, from %.6f s %s",
		o.Client, o.Server, o.Round, did, float64(o.Call)/1e9, ended)
}

// History is all operations of one file.
type History struct {
	operations []*Operation
}

type keyed struct {
	kind, key  string
	operations []*Operation
}

var operationsOf = map[string]string{
	"register": "read write swap cas",
	"document": "read write swap cas",
	"counter":  "increment read",
	"lease":    "grant",
	"list":     "steps",
}

func readHistory(path string) (*History, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	history := &History{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for number := 1; lines.Scan(); number++ {
		var operation Operation
		decoder := json.NewDecoder(strings.NewReader(lines.Text()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&operation); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		if err := operation.validate(); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		history.operations = append(history.operations, &operation)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(history.operations) == 0 {
		return nil, fmt.Errorf("%s: an empty history proves nothing", path)
	}
	return history, nil
}

func (o *Operation) validate() error {
	names, found := operationsOf[o.Kind]
	if !found {
		return fmt.Errorf("kind %q is unknown", o.Kind)
	}
	for _, name := range strings.Fields(names) {
		if name != o.Op {
			continue
		}
		if o.known() && *o.Return < o.Call {
			return fmt.Errorf("it returned before it was called")
		}
		if o.Kind == "list" && len(o.Steps) == 0 {
			return fmt.Errorf("it has no steps")
		}
		return nil
	}
	return fmt.Errorf("a %s has no operation %q", o.Kind, o.Op)
}

// byKey groups the operations on single keys; lists are checked together.
func (h *History) byKey() []keyed {
	found := map[[2]string]*keyed{}
	var order []*keyed
	for _, operation := range h.operations {
		if operation.Kind == "list" {
			continue
		}
		name := [2]string{operation.Kind, operation.Key}
		if found[name] == nil {
			found[name] = &keyed{kind: operation.Kind, key: operation.Key}
			order = append(order, found[name])
		}
		found[name].operations = append(found[name].operations, operation)
	}
	sort.Slice(order, func(i, j int) bool {
		return order[i].kind+order[i].key < order[j].kind+order[j].key
	})
	groups := make([]keyed, len(order))
	for i, group := range order {
		groups[i] = *group
	}
	return groups
}

// figures says how much was checked.
func (h *History) figures() string {
	known, weak := 0, 0
	for _, operation := range h.operations {
		if operation.known() {
			known++
		}
		if operation.Weak {
			weak++
		}
	}
	return fmt.Sprintf("%d operations are in order, %d with a reply, %d reads of followers",
		len(h.operations), known, weak)
}
