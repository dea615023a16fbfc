package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// verdict checks a history given as lines; an empty text means that it is accepted.
func verdict(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	history, err := readHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := check(history); err != nil {
		return err.Error()
	}
	return ""
}

func accepted(t *testing.T, lines ...string) {
	t.Helper()
	if found := verdict(t, lines...); found != "" {
		t.Errorf("refused: %s", found)
	}
}

func refused(t *testing.T, reason string, lines ...string) {
	t.Helper()
	if found := verdict(t, lines...); !strings.Contains(found, reason) {
		t.Errorf("not refused with %q: %q", reason, found)
	}
}

const (
	writeA = `{"client":"1","kind":"register","key":"k","op":"write","value":"a","call":0,"return":10}`
	writeB = `{"client":"1","kind":"register","key":"k","op":"write","value":"b","call":20,"return":30}`
	openB  = `{"client":"1","kind":"register","key":"k","op":"write","value":"b","call":20}`
	readA  = `{"client":"2","kind":"register","key":"k","op":"read","out":"a","call":40,"return":50}`
	readB  = `{"client":"2","kind":"register","key":"k","op":"read","out":"b","call":40,"return":50}`
	readNo = `{"client":"2","kind":"register","key":"k","op":"read","call":40,"return":50}`
	lateA  = `{"client":"3","kind":"register","key":"k","op":"read","out":"a","call":60,"return":70}`
)

func TestRegisters(t *testing.T) {
	accepted(t, writeA, writeB, readB)
	accepted(t, writeA, openB, readA)
	accepted(t, writeA, openB, readB)
	accepted(t, writeA, openB, readA, `{"client":"3","kind":"register","key":"k","op":"read","out":"b","call":60,"return":70}`)
	refused(t, "no order", writeA, writeB, readA)
	refused(t, "no order", writeA, readNo)
	refused(t, "no order", writeA, openB, readB, lateA)
	refused(t, "nobody wrote", writeA, readB)
	refused(t, "from the future", writeA, readB, `{"client":"1","kind":"register","key":"k","op":"write","value":"b","call":60,"return":70}`)
	refused(t, "written twice", writeA, writeA)
}

func TestTheFirstWrongReplyIsNamed(t *testing.T) {
	found := verdict(t, writeA, writeB, readA, lateA)
	if !strings.Contains(found, "explains this reply:\n    client 2") {
		t.Error(found)
	}
}

// With n reads that wait at the same time, a search that is not careful takes 2^n steps.
func TestManyReadsThatWaitAtTheSameTime(t *testing.T) {
	lines := []string{writeA, openB}
	for i := 0; i < 200; i++ {
		lines = append(lines, fmt.Sprintf(
			`{"client":"r%d","kind":"register","key":"k","op":"read","out":"%s","call":%d,"return":%d}`,
			i, map[bool]string{true: "a", false: "b"}[i < 100], 100+i, 1000+i))
	}
	accepted(t, lines...)
	late := `{"client":"3","kind":"register","key":"k","op":"read","out":"%s","call":2000,"return":2010}`
	accepted(t, append(lines, fmt.Sprintf(late, "b"))...)
	refused(t, "no order", append(lines, fmt.Sprintf(late, "a"),
		`{"client":"4","kind":"register","key":"k","op":"read","out":"b","call":1900,"return":1910}`)...)
}

func TestConcurrentWritesMayTakeEffectInAnyOrder(t *testing.T) {
	concurrent := `{"client":"3","kind":"register","key":"k","op":"write","value":"b","call":5,"return":15}`
	accepted(t, writeA, concurrent, readA)
	accepted(t, writeA, concurrent, readB)
}

func TestSwaps(t *testing.T) {
	swap := `{"client":"2","kind":"register","key":"k","op":"swap","value":"c","out":"a","call":40,"return":50}`
	accepted(t, writeA, swap)
	refused(t, "no order", writeA, writeB, swap)
	refused(t, "no order", writeA, swap, lateA)
}

func TestOldReadsOfFollowersAreAcceptedButInventedOnesAreNot(t *testing.T) {
	accepted(t, writeA, writeB, strings.Replace(readA, `"call"`, `"weak":true,"call"`, 1))
	refused(t, "nobody wrote", writeA, strings.Replace(readB, `"call"`, `"weak":true,"call"`, 1))
}

const (
	created  = `{"client":"1","kind":"document","key":"d","op":"cas","value":"a","ok":true,"call":0,"return":10}`
	edited   = `{"client":"1","kind":"document","key":"d","op":"cas","from":"a","value":"b","ok":true,"call":20,"return":30}`
	also     = `{"client":"2","kind":"document","key":"d","op":"cas","from":"a","value":"c","ok":true,"call":20,"return":30}`
	conflict = `{"client":"2","kind":"document","key":"d","op":"cas","from":"a","value":"c","ok":false,"call":20,"return":30}`
	openEdit = `{"client":"3","kind":"document","key":"d","op":"cas","from":"a","value":"d","call":11}`
)

func TestDocuments(t *testing.T) {
	accepted(t, created, edited, conflict)
	accepted(t, created, openEdit, conflict)
	refused(t, "no order", created, edited, also)
	refused(t, "no order", created, conflict)
	refused(t, "whose write was refused", created, openEdit, conflict,
		`{"client":"2","kind":"document","key":"d","op":"read","out":"c","call":40,"return":50}`)
}

func TestCounters(t *testing.T) {
	one := `{"client":"1","kind":"counter","key":"n","op":"increment","number":1,"call":0,"return":10}`
	two := `{"client":"2","kind":"counter","key":"n","op":"increment","number":2,"call":20,"return":30}`
	early := `{"client":"2","kind":"counter","key":"n","op":"increment","number":2,"call":0,"return":30}`
	open := `{"client":"2","kind":"counter","key":"n","op":"increment","call":0}`
	three := `{"client":"1","kind":"counter","key":"n","op":"increment","number":3,"call":40,"return":50}`
	read1 := `{"client":"1","kind":"counter","key":"n","op":"read","number":1,"call":40,"return":50}`
	accepted(t, one, two)
	accepted(t, one, open, three, `{"client":"1","kind":"counter","key":"n","op":"read","number":3,"call":60,"return":70}`)
	accepted(t, early, strings.Replace(one, `"call":0`, `"call":5`, 1))
	refused(t, "same result", one, one)
	refused(t, "one ran twice", one, three)
	refused(t, "later place", one, two, read1)
	refused(t, "later place", two, strings.Replace(one, `"call":0,"return":10`, `"call":40,"return":50`, 1))
}

func TestLeases(t *testing.T) {
	first := `{"client":"1","kind":"lease","key":"l","op":"grant","number":100,"call":0,"return":10}`
	second := `{"client":"2","kind":"lease","key":"l","op":"grant","number":300,"call":20,"return":30}`
	lower := `{"client":"3","kind":"lease","key":"l","op":"grant","number":200,"call":40,"return":50}`
	accepted(t, first, second)
	refused(t, "later place", first, second, lower)
	refused(t, "granted twice", first, strings.Replace(first, `"1"`, `"2"`, 1))
}

func appendTo(key, value string, length, call, end string) string {
	return `{"client":"1","kind":"list","op":"steps","steps":[{"key":"` + key + `","append":"` + value + `","length":` +
		length + `}],"call":` + call + `,"return":` + end + `}`
}

func readOf(key, elements, call, end string) string {
	return `{"client":"2","kind":"list","op":"steps","steps":[{"key":"` + key + `","read":[` + elements + `]}],"call":` +
		call + `,"return":` + end + `}`
}

func TestLists(t *testing.T) {
	a, b := appendTo("x", "a", "1", "0", "10"), appendTo("x", "b", "2", "20", "30")
	all := readOf("x", `"a","b"`, "100", "110")
	accepted(t, a, b, all)
	accepted(t, a, readOf("x", `"a"`, "15", "25"), b, all)
	refused(t, "lost", a, b, readOf("x", `"a"`, "100", "110"))
	refused(t, "lost", a, readOf("x", ``, "100", "110"))
	refused(t, "there twice", a, b, readOf("x", `"a","b","a"`, "100", "110"))
	refused(t, "by nobody", a, b, readOf("x", `"a","b","c"`, "100", "110"))
	refused(t, "do not agree on element 1", a, b, readOf("x", `"b"`, "40", "50"), all)
	refused(t, "later place", a, b, readOf("x", `"a"`, "40", "50"), all)
	refused(t, "later place", a, b, readOf("x", `"a","b"`, "40", "50"), readOf("x", `"a"`, "60", "70"))
	refused(t, "it is number 2", a, appendTo("x", "b", "2", "20", "30"), readOf("x", `"b","a"`, "100", "110"))
	refused(t, "from the future", appendTo("x", "a", "1", "20", "30"), readOf("x", `"a"`, "0", "10"))
}

func TestAnAppendWithoutAReplyMayHaveHappenedOrNot(t *testing.T) {
	open := `{"client":"1","kind":"list","op":"steps","steps":[{"key":"x","append":"a"}],"call":0}`
	accepted(t, open, readOf("x", ``, "100", "110"))
	accepted(t, open, readOf("x", ``, "10", "20"), readOf("x", `"a"`, "100", "110"))
	refused(t, "later place", open, readOf("x", `"a"`, "10", "20"), readOf("x", ``, "30", "40"))
}

func TestReadsOfFollowersShowTheSameOrder(t *testing.T) {
	a, b := appendTo("x", "a", "1", "0", "10"), appendTo("x", "b", "2", "20", "30")
	all := readOf("x", `"a","b"`, "100", "110")
	weak := func(elements string) string {
		return strings.Replace(readOf("x", elements, "120", "130"), `"call"`, `"weak":true,"call"`, 1)
	}
	accepted(t, a, b, all, weak(`"a"`))
	refused(t, "do not agree", a, b, all, weak(`"b"`))
}

func TestOrdersOfSeveralListsThatContradictEachOther(t *testing.T) {
	openX := `{"client":"1","kind":"list","op":"steps","steps":[{"key":"x","append":"a","length":1}],"call":0,"return":100}`
	openY := `{"client":"2","kind":"list","op":"steps","steps":[{"key":"y","append":"b","length":1}],"call":0,"return":100}`
	both := func(client, x, y string) string {
		return `{"client":"` + client + `","kind":"list","op":"steps","steps":[{"key":"x","read":[` + x + `]},{"key":"y","read":[` + y +
			`]}],"call":0,"return":100}`
	}
	accepted(t, openX, openY, both("3", `"a"`, ``), both("4", `"a"`, `"b"`))
	refused(t, "cycle", openX, openY, both("3", `"a"`, ``), both("4", ``, `"b"`))
	// half a transaction
	pair := `{"client":"1","kind":"list","op":"steps","steps":[{"key":"x","append":"a","length":1},{"key":"y","append":"b","length":1}],"call":0,"return":100}`
	refused(t, "cycle", pair, both("3", `"a"`, ``), both("4", `"a"`, `"b"`))
}

func TestACycleThroughRealTime(t *testing.T) {
	first := appendTo("x", "a", "1", "0", "10")
	second := appendTo("y", "b", "1", "20", "30")
	torn := `{"client":"3","kind":"list","op":"steps","steps":[{"key":"x","read":[]},{"key":"y","read":["b"]}],"call":5,"return":100}`
	refused(t, "cycle", first, second, torn, readOf("x", `"a"`, "110", "120"))
}

func TestWhatIsNoHistoryIsRefused(t *testing.T) {
	for _, line := range []string{
		``,
		`{`,
		`{"kind":"register","op":"write","valeu":"a"}`,
		`{"kind":"queue","op":"push"}`,
		`{"kind":"lease","op":"write"}`,
		`{"kind":"list","op":"steps"}`,
		`{"kind":"register","op":"read","call":10,"return":5}`,
	} {
		path := filepath.Join(t.TempDir(), "history.jsonl")
		if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readHistory(path); err == nil {
			t.Errorf("accepted: %q", line)
		}
	}
}
