package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sort"
	"strings"
)

var active, activeP string // the one fault, the one peculiarity
var httpPort, grpcPort int

// F says whether the fault is switched on, P whether the peculiarity is.
func F(id string) bool { return active == id }
func P(id string) bool { return activeP == id }

type decl struct{ id, line string }

var faults, peculiars []decl

// D declares faults that are switched by F in the code; DP the same for P.
func D(lines ...string) {
	for _, l := range lines {
		faults = append(faults, decl{strings.SplitN(l, "|", 2)[0], l})
	}
}
func DP(lines ...string) {
	for _, l := range lines {
		peculiars = append(peculiars, decl{strings.SplitN(l, "|", 2)[0], l})
	}
}

type hmut struct {
	id, route string
	fn        func(m M, c *C)
}
type gmut struct {
	id, method string
	fn         func(m *Msg, g *G)
}

var hmuts []hmut
var gmuts, rmuts []gmut

// fx declares a fault that changes an HTTP answer, gx one that changes a gRPC
// answer, rx one that changes how a gRPC request is read.
func fx(line, route string, fn func(m M, c *C)) {
	D(line)
	hmuts = append(hmuts, hmut{strings.SplitN(line, "|", 2)[0], route, fn})
}
func px(line, route string, fn func(m M, c *C)) {
	DP(line)
	hmuts = append(hmuts, hmut{"P:" + strings.SplitN(line, "|", 2)[0], route, fn})
}
func gx(line, method string, fn func(m *Msg, g *G)) {
	D(line)
	gmuts = append(gmuts, gmut{strings.SplitN(line, "|", 2)[0], method, fn})
}
func pgx(line, method string, fn func(m *Msg, g *G)) {
	DP(line)
	gmuts = append(gmuts, gmut{"P:" + strings.SplitN(line, "|", 2)[0], method, fn})
}
func rx(line, method string, fn func(m *Msg, g *G)) {
	D(line)
	rmuts = append(rmuts, gmut{strings.SplitN(line, "|", 2)[0], method, fn})
}
func on(id string) bool {
	if strings.HasPrefix(id, "P:") {
		return activeP == id[2:]
	}
	return active == id
}

var kinds = map[string]string{"fld": "fields", "gua": "guards", "rou": "routes", "num": "numbers",
	"ref": "refusals", "rel": "relations", "eff": "effects", "lim": "limits"}

func has(ds []decl, id string) bool {
	for _, d := range ds {
		if d.id == id {
			return true
		}
	}
	return false
}

func main() {
	port := flag.Int("port", 8000, "HTTP port; gRPC is served at this port plus 1000")
	fault := flag.String("fault", "", "id of one fault")
	pec := flag.String("peculiar", "", "id of one permitted peculiarity")
	list := flag.Bool("list", false, "print the ids")
	dump := flag.String("dump", "", "print the lines of faults.txt or peculiar.txt: faults or peculiar")
	probe := flag.String("probe", "", "for the self-test: call the gRPC service at this address and print what it answers")
	flag.Parse()
	registerAll()
	switch {
	case *list:
		fm := map[string]string{}
		for _, d := range faults {
			fm[d.id] = kinds[d.id[:3]]
		}
		pl := []string{}
		for _, d := range peculiars {
			pl = append(pl, d.id)
		}
		sort.Strings(pl)
		b, _ := json.MarshalIndent(map[string]interface{}{"faults": fm, "peculiar": pl}, "", " ")
		fmt.Println(string(b))
		return
	case *dump != "":
		ds := faults
		if *dump == "peculiar" {
			ds = peculiars
		}
		for _, d := range ds {
			fmt.Println(d.line)
		}
		return
	case *probe != "":
		runProbe(*probe)
		return
	}
	if *fault != "" && !has(faults, *fault) || *pec != "" && !has(peculiars, *pec) {
		fmt.Fprintln(os.Stderr, "unknown id")
		os.Exit(2)
	}
	active, activeP = *fault, *pec
	httpPort, grpcPort = *port, *port+1000
	setup()
	startGRPC()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", httpPort))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "node at %d and %d\n", httpPort, grpcPort)
	http.Serve(l, http.HandlerFunc(serve))
}
