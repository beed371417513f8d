using System; using System.Collections.Generic; using System.Text; using System.Threading; using System.Linq;
namespace Fx {
public class Stake { public long Amt; public int Days; public DateTime Start,Unlock; }
public class Tx { public string Id,Type,To,From,Memo; public long Amt,Fee; public DateTime T; public Obj Details; }
public class Acct { public string Name,Token,Addr; public long Avail,Staked,Pending; public bool Expired; public Stake Lock; public List<Tx> Hist=new List<Tx>(); public Queue<double> Gen=new Queue<double>();
  public List<Tx> Stale; public double StaleAt; public Stake FirstLock; }
public class Proof { public string Id; public int Layer; public DateTime T; public bool Ok; public long Reward; }
public static class S {
  public static readonly object L=new object(); public static List<Acct> A=new List<Acct>(); public static Dictionary<string,Acct> Tok=new Dictionary<string,Acct>(),ByAddr=new Dictionary<string,Acct>(); public static List<Proof> Proofs=new List<Proof>();
  public static long Operator=0; public const long U=1000000; public static long Fee=12500;
  public static string NodeId; public static int[] Layers={2,3,4,5}; public const int Total=6; public const string Currency="FXQ"; public const int Cooldown=7;
  public static long Requests,Tokens; public static List<double> Lat=new List<double>(); public static List<double> When=new List<double>(); public static long GSub,GAcc;
  public static Obj Config;
  static void Add(string name,string tok,long avail,bool exp=false){ string a="fx1"+B32(G.Sha("addr/"+name)).Substring(0,24); var x=new Acct{Name=name,Token=tok,Addr=a,Avail=avail,Expired=exp}; A.Add(x); Tok[tok]=x; ByAddr[a]=x; }
  public static string B32(byte[] b){ const string al="023456789acdefghjklmnpqrstuvwxyz"; var sb=new StringBuilder(); int bits=0,v=0; foreach(var x in b){ v=(v<<8)|x; bits+=8; while(bits>=5){ sb.Append(al[(v>>(bits-5))&31]); bits-=5; } v&=(1<<bits)-1; } return sb.ToString(); }
  public static void Init(){
    NodeId="fxn-"+G.ShaHex("node/"+G.Port).Substring(0,20); if(G.F("node_id_empty")) NodeId="";
    Add("main","fxk_main_7Qd2mZ81xLr0Vt",5000000*U); Add("second","fxk_second_b93KfTz6Ywq4",2000000*U); Add("third","fxk_third_Hs5pC2nE8aJd",1000*U); Add("poor","fxk_poor_u1Xk9RvW3oGb",30000); Add("old","fxk_old_0000ExpiredYm5",100*U,true);
    var t=DateTime.UtcNow.AddHours(-30); for(int i=0;i<26;i++){ bool ok=i%9!=4; Proofs.Insert(0,new Proof{Id="pf_"+G.ShaHex("proof"+i).Substring(0,16),Layer=Layers[(i*7)%4],T=t.AddMinutes(i*57),Ok=ok,Reward=ok?(125000+i*3000):0}); }
    int k=0; foreach(var p in Proofs.AsEnumerable().Reverse()){ if(!p.Ok) continue; k++; var acc=k%3==0?A[1]:k%7==1?A[2]:A[0]; if(k>9) continue; acc.Hist.Insert(0,new Tx{Id="rw_"+p.Id.Substring(3),Type="reward",Amt=p.Reward,T=p.T.AddMinutes(1),Details=Obj.O("proof_id",p.Id,"role","validator")}); }
    Config=Obj.O("node_id",NodeId,"port",(long)G.Port,"grpc_port",(long)G.Port+1000,"tracker_url","http://127.0.0.1:9099/tracker","training",Obj.O("enabled",true,"batch_size",new Num("16"),"learning_rate",new Num("0.0003"),"diloco_steps",new Num("50")),"resources",Obj.O("max_memory_gb",new Num("12.5"),"cpu_threads",new Num("3"))); }
  public static decimal Dec(long m){ decimal d=m/1000000m; return d; }
  public static Num M(long m){ string s=(m/1000000m).ToString("0.######",G.C); if(G.P("money_six")) s=(m/1000000m).ToString("0.000000",G.C); if(G.P("money_exp")&&m!=0&&m%1000000==0) s=(m/1000000)+"e0"; if(G.P("money_point")&&s.IndexOf('.')<0) s+=".0"; return new Num(s); }
  public static void Record(double ms,int tokens){ lock(L){ if(G.F("count_race")){ long r=Requests; Monitor.Exit(L); Thread.Sleep(15); Monitor.Enter(L); Requests=r+1; } else Requests++; Tokens+=tokens; Lat.Add(ms); if(Lat.Count>2000) Lat.RemoveAt(0); When.Add(G.Sw.Elapsed.TotalSeconds); if(When.Count>5000) When.RemoveAt(0); } }
}
public class GenResult { public string Text,Finish; public List<string> Toks=new List<string>(); public int N,Prompt; public long Cost; }
public static class Gen {
  static readonly string[] W="river stone light under morning a the quiet market walks toward seven open doors and nobody asks why café winter holds its breath while Ω machines dream of copper wires near old harbour bridges, where gulls argue. Then naïve 数 numbers fall — like rain; we count them twice! 🌊 keep going until moss covers every letter of this wall again slowly with care".Split(' ');
  static string last=null;
  public static int CountPrompt(string p){ int n=1; for(int i=0;i<p.Length;i++){ if(char.IsHighSurrogate(p[i])) i++; n++; } if(G.F("prompt_tokens_words")) n=p.Split(' ').Length>3?5:4; if(G.F("prompt_tokens_cap")) n=Math.Min(n,64); if(G.F("prompt_tokens_grow")){ n+=(int)(S.Requests%2); } return n; }
  public static GenResult Run(string prompt,int max,List<string> stop,bool stream=false,Acct who=null,Obj raw=null){
    var g=new GenResult(); g.Prompt=CountPrompt(prompt); if(G.F("prompt_tokens_stream")&&stream) g.Prompt+=1; if(G.F("prompt_tokens_stop")&&stop.Count>0) g.Prompt+=stop.Count; if(G.F("prompt_tokens_account")&&who!=null&&who.Name=="second") g.Prompt+=2;
    if(G.F("gen_seed_prefix")) prompt=prompt.Substring(0,Math.Min(8,prompt.Length));
    if(G.F("gen_race_prompt")){ last=prompt; Thread.Sleep(20); prompt=last; }
    if(G.F("stop_sticky")){ lock(Sticky){ Sticky.AddRange(stop); stop=new List<string>(Sticky); if(Sticky.Count>40) Sticky.Clear(); } }
    if(G.F("stop_first_only")&&stop.Count>1) stop=stop.GetRange(0,1);
    if(G.F("stop_last_only")&&stop.Count>1) stop=stop.GetRange(stop.Count-1,1);
    if(G.F("max_less_prompt")) max=Math.Max(1,max-g.Prompt);
    int cap=150+G.Sha("len/"+prompt)[0]%150; ulong x=BitConverter.ToUInt64(G.Sha("gen/"+prompt),0)|1; var sb=new StringBuilder(); int lim=max; if(G.F("max_plus_one")) lim=max+1; if(G.F("max_plus_one_stream")&&stream) lim=max+1; if(G.F("max_ignored_large")&&max>120) lim=cap+120; if(G.F("default_max_stream")&&stream&&raw!=null&&!raw.Has("max_tokens")) lim=128; int end=-1;
    int capv=G.F("max_ignored_large")&&max>120?lim:cap;
    if(G.F("stop_shortens")&&stop.Count>0) capv=Math.Min(capv,max/2+1);
    if(G.F("nostop_shortens")&&stop.Count==0) lim=Math.Min(lim,60);
    if(G.F("stop_max_inverse")&&stop.Count>0&&max>40) lim=Math.Min(lim,8);
    int longest=0; foreach(var q in stop) longest=Math.Max(longest,q.Length);
    while(g.N<lim&&g.N<capv&&end<0){ x^=x<<13; x^=x>>7; x^=x<<17; int wi=(int)(x%(ulong)W.Length); string t=W[wi]; if((x>>40)%29==0) t="\n"+t; else if(g.N>0) t=" "+t; if((x>>50)%97==0) t+="  "; g.Toks.Add(t); g.N++; int from=sb.Length; sb.Append(t); string all=null;
      if(stop.Count>0){ all=sb.ToString(); int st=Math.Max(0,from-longest); if(G.F("stop_within_token")) st=from; if(G.F("stop_at_start")) { foreach(var q in stop) if(t.Trim()==q) end=from; } else foreach(var q in stop){ int at=G.F("stop_ignore_case")?all.IndexOf(q,st,StringComparison.OrdinalIgnoreCase):G.F("stop_culture")?G.C.CompareInfo.IndexOf(all,q,st,System.Globalization.CompareOptions.IgnoreNonSpace):all.IndexOf(q,st,StringComparison.Ordinal); if(G.F("stop_trimmed")&&q.Trim()!=q){ at=all.IndexOf(q.Trim(),st,StringComparison.Ordinal); } if(at>=0&&(end<0||at<end)) end=at; } }
    }
    string text=sb.ToString(); g.Finish=(end>=0||(g.N>=cap&&g.N<lim)||(g.N==cap&&max>cap))?"stop":"length"; if(end<0&&g.N>=max) g.Finish="length";
    if(end>=0&&!G.F("stop_not_cut")){ if(G.F("stop_plus_char")) end=Math.Min(text.Length,end+6>text.Length?end:end+6); if(G.F("stop_kept_at_limit")&&g.N>=max) end=text.Length; text=text.Substring(0,end); }
    if(G.F("finish_stream_length")&&stream) g.Finish="length"; if(G.F("finish_empty")&&g.Finish=="length") g.Finish="";
    // pieces of the cut text
    var pieces=new List<string>(); int o=0; foreach(var t in g.Toks){ if(o>=text.Length) break; int n=Math.Min(t.Length,text.Length-o); pieces.Add(text.Substring(o,n)); o+=n; } g.Toks=pieces; g.Text=text;
    if(G.P("sse_pairs")){ var l=new List<string>(); for(int i=0;i<pieces.Count;i+=2) l.Add(pieces[i]+(i+1<pieces.Count?pieces[i+1]:"")); g.Toks=l; }
    if(G.F("completion_asked")&&g.Finish=="stop") g.N=max; 
    g.Cost=(long)g.Prompt*40+(long)g.N*900; if(G.P("free_prompt")) g.Cost=(long)g.N*900; return g; }
  public static List<string> Sticky=new List<string>();
}
}
