module model;
import base, mut;
import core.stdc.math : tanhf;
enum NL = 6, HD = 8, VOC = 32, CTX = 4096; immutable int[] HELD = [2,3,4,5];
immutable string[] WORDS = [" the"," blue"," stone"," river"," and"," light","."," moves"," over"," old"," hills",","," with"," some"," green"," trees"," near"," a"," small"," house"," where"," birds"," sing"," all"," day"," long"," until"," night"," comes"," to"," us","\n"," café"," two"," \"hey\""," snow"," wind"," field"," road"," town","!"," rain"," gold"," leaf"," sea"," ship"," star"," song"];
int tokens(string s) { int n; size_t i; // a token: at most one space and up to five ASCII letters or digits; or one other letter
  while (i < s.length) { n++; if (s[i]==' ') i++; if (i>=s.length) break; bool al(char c) { return (c>='a'&&c<='z')||(c>='A'&&c<='Z')||(c>='0'&&c<='9'); } if (al(s[i])) { int q; while (i<s.length && al(s[i]) && q<5) { i++; q++; } } else { i++; while (i<s.length && (s[i]&0xc0)==0x80) i++; } }
  return n; }
struct Gen { string[] pieces; string text; int comp, prompt; string fin; double[] lp; }
struct GP { string prompt; int max = 100; double temp = 1.0, topp = 1.0; long topk = 50; string[] stops; long seed; bool hasSeed; int choice; bool stream; double fp = 0, pp = 0; }
Gen gen(GP q) { Gen g; g.prompt = tokens(q.prompt); if (f("eff-prompt-bytes")) g.prompt = cast(int) q.prompt.length / 40 + 1; if (f("eff-prompt-stream1") && q.stream) g.prompt++;
  string pr = q.prompt; if (f("eff-prompt-tail") && pr.length > 64) pr = pr[$-16..$]; if (f("eff-prompt-head") && pr.length > 24) pr = pr[0..16]; if (f("eff-prompt-lower")) pr = pr.toLower; if (f("eff-prompt-last") ) { __gshared string lastP; auto z = lastP; lastP = pr; if (z.length) pr = z; }
  ulong base0 = hash64(q.temp == 0 ? "g:" ~ pr ~ (f("eff-t0-random") ? uniform!uint().to!string : f("eff-t0-len") ? q.max.to!string : f("eff-t0-stops") ? q.stops.join("|") : f("eff-t0-topk") ? q.topk.to!string : "") : format("s:%.6f:%.6f:%d:%d:%d:", q.temp, q.topp, q.topk, q.hasSeed ? q.seed : 0, q.choice) ~ pr);
  int max0 = q.max; if (f("lim-max-plus1")) max0++; if (f("lim-max-lessprompt")) max0 = max(1, max0 - g.prompt); if (f("lim-max-256")) max0 = min(max0, 256); if (f("lim-max-stream-plus1") && q.stream) max0++; if (f("lim-max-minus1") && max0 > 20) max0--;
  string t; ulong x = base0; int cut = -1; string[] stops = q.stops; if (f("eff-stop-first")) stops = stops.length ? stops[0..1] : stops; if (f("eff-stop-ten") && stops.length > 10) stops = stops[0..10]; if (f("eff-stop-last")) stops = stops.length ? stops[$-1..$] : stops; if (f("eff-stop-stream") && q.stream) stops = null; if (f("eff-stop-case")) {}
  if (f("eff-stop-default")) stops = stops ~ "\n"; if (f("eff-stop-strip")) stops = stops.map!(s => s.strip).array; if (f("eff-stop-leak")) { __gshared string[] keep; if (stops.length) keep = stops; else stops = keep; }
  size_t from = 0; string[] ps; foreach (i; 0..max0) { x = x*6364136223846793005UL + 1442695040888963407UL; auto w = WORDS[cast(size_t)((x>>33) % WORDS.length)]; ps ~= w; g.lp ~= -0.01 - cast(double)((x>>20)&1023)/400; size_t before = t.length; t ~= w;
    foreach (s; stops) { if (!s.length) continue; size_t st = before + 1 > s.length ? before + 1 - s.length : 0; if (f("eff-stop-boundary")) st = before; if (f("eff-stop-whole") ) { if (w.strip == s.strip) { if (cut < 0 || before < cut) cut = cast(int) before; } continue; } auto k = f("eff-stop-case") ? t[st..$].toLower.indexOf(s.toLower) : t[st..$].indexOf(s); if (k >= 0) { int at = cast(int)(st + k); if (cut < 0 || at < cut) cut = at; } }
    if (cut >= 0 && !f("eff-stop-runs-on")) break; }
  g.comp = cast(int) ps.length; g.fin = cut >= 0 ? "stop" : "length"; if (f("rel-fin-always")) g.fin = "stop"; if (f("rel-fin-length")) g.fin = "length"; if (f("rel-fin-stream") && q.stream) g.fin = "stop";
  if (cut >= 0 && !f("eff-stop-kept")) { if (f("eff-stop-cutone")) cut = max(0, cut-1); if (f("eff-stop-part")) { t = t[0..min(t.length, cut+1)]; } else t = t[0..cut]; size_t n; string[] ps2; foreach (w; ps) { if (n >= t.length) break; auto e = min(n + w.length, t.length); ps2 ~= t[n..e]; n = e; } ps = ps2; if (f("eff-stop-count-max")) g.comp = q.max; }
  else if (cut >= 0 && f("eff-stop-kept") && f("eff-stop-runs-on")) {}
  g.pieces = ps; g.text = t; return g; }
// ---- the layers
float wt(int l, int r, int c) { return cast(float)((cast(double)(hash64(format("w%d:%d:%d", l, r, c)) % 20001)) / 10000.0 - 1.0) * 0.6f; }
__gshared float[HD][HD][NL] W; __gshared float[HD][NL] BI; __gshared float[HD][VOC] HEAD;
void modelInit() { foreach (l; 0..NL) foreach (r; 0..HD) { BI[l][r] = wt(l, r, 99); foreach (c; 0..HD) W[l][r][c] = wt(l, r, c); } foreach (v; 0..VOC) foreach (c; 0..HD) HEAD[v][c] = wt(77, v, c); }
float[] floats(string s) { return (cast(const(float)[]) (cast(const(void)[]) s[0..s.length/4*4].dup)).dup; }
float[] floatsOld(string s) { float[] r; for (size_t i; i+4 <= s.length; i += 4) { uint u = cast(ubyte) s[i] | cast(ubyte) s[i+1]<<8 | cast(ubyte) s[i+2]<<16 | cast(uint) cast(ubyte) s[i+3]<<24; r ~= *cast(float*)&u; } return r; }
string bytesOf(const float[] x) { return cast(string) (cast(const(ubyte)[]) x).idup; }
string bytesOld(const float[] x) { auto o = new ubyte[x.length*4]; foreach (i, v; x) { uint u = *cast(uint*)&v; o[4*i] = cast(ubyte) u; o[4*i+1] = cast(ubyte)(u>>8); o[4*i+2] = cast(ubyte)(u>>16); o[4*i+3] = cast(ubyte)(u>>24); } return cast(string) o; }
string layerBytes(int l) { float[] r; foreach (a; W[l]) r ~= a[]; r ~= BI[l][]; return bytesOf(r); }
string modelHash() { string s; foreach (l; 0..NL) s ~= layerBytes(l); return sha(s); }
__gshared string MH;
float[] fwd(int l, float[] h, size_t b, size_t s, ref float[][] past) { auto o = new float[h.length]; foreach (bi; 0..b) { float[HD] sum = 0; float n = 0; if (past.length > bi) { n = past[bi][0]; sum[] = past[bi][1..1+HD]; } foreach (si; 0..s) { auto x = h[(bi*s+si)*HD..(bi*s+si+1)*HD]; n += 1; sum[] += x[]; float[HD] u = void; foreach (c; 0..HD) u[c] = x[c] + 0.25f*sum[c]/n; foreach (r; 0..HD) { float z = BI[l][r]; foreach (c; 0..HD) z += W[l][r][c] * u[c]; o[(bi*s+si)*HD+r] = tanhf(z); } } if (past.length <= bi) past ~= new float[1+HD]; past[bi][0] = n; past[bi][1..1+HD] = sum[]; } return o; }
float[] headOf(float[] h, size_t n) { auto o = new float[n*VOC]; foreach (i; 0..n) foreach (v; 0..VOC) { float z = 0; foreach (c; 0..HD) z += HEAD[v][c]*h[i*HD+c]; o[i*VOC+v] = z; } return o; }
double lossOf(float[] lg, long[] lab) { double t = 0; foreach (i, y; lab) { double m = -1e30, s = 0; foreach (v; 0..VOC) m = max(m, lg[i*VOC+v]); foreach (v; 0..VOC) s += exp(lg[i*VOC+v]-m); t += m + log(s) - lg[i*VOC+cast(size_t)y]; } return t/lab.length; }
