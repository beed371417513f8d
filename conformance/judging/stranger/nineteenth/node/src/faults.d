module faults;
import base, mut;
// lines: id|requirement|s (stated) or g (good sense)|sentence, and for a fault that changes an answer: |route|path|operation|condition
string fixed(string t) { return t; }
string[][] all() { string[][] r; string kind; foreach (l; import("faults.txt").lineSplitter) { if (!l.strip.length) continue; if (l[0] == '#') { kind = l[1..$].strip; continue; } auto w = l.split("|"); r ~= [kind] ~ w; } return r; }
void listFaults() { foreach (w; all()) writeln(w[1], "\t", w[0], "\t", w[2], "\t", w[4], "\t", w[3] == "s" ? "stated" : "sense"); }
void listPec() { foreach (l; import("peculiarities.txt").lineSplitter) if (l.strip.length) { auto w = l.split("|"); writeln(w[0], "\t", w[1], "\t", w[2]); } }
void setFault(string id) { foreach (w; all()) if (w[1] == id) { FA = id; if (w.length >= 8) { if (w[7].startsWith("num:")) renum[w[6]] = w[7][4..$].to!int; else if (w[7].startsWith("wire:")) rewire[w[6]] = w[7][5..$]; else { M.on = true; M.kind = w[0]; M.req = w[2]; M.route = w[5]; M.path = w[6]; M.op = w[7]; M.cond = w.length > 8 ? w[8] : "always"; } } return; } stderr.writeln("unknown fault ", id); import core.stdc.stdlib; exit(2); }
void setPec(string id) { foreach (l; import("peculiarities.txt").lineSplitter) { auto w = l.split("|"); if (w[0] == id) { PE = id; if (w.length >= 6) { M.on = true; M.route = w[3]; M.path = w[4]; M.op = w[5]; M.cond = "always"; } return; } } stderr.writeln("unknown peculiarity ", id); import core.stdc.stdlib; exit(2); }
