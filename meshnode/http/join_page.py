"""``/join``: one plain page for people who followed an old link (interface 4.2 rule 8).

It has no scripts, no fonts, and loads nothing from elsewhere: it must work on a node without other
network access, in a screen reader and in a text browser. Values from the chain are escaped.
"""

from __future__ import annotations

from html import escape

SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)

_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 42rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; line-height: 1.6;
       font: 1rem/1.6 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; }
h2 { font-size: 1.15rem; margin-top: 2rem; }
pre { overflow-x: auto; padding: .75rem 1rem; border: 1px solid; border-radius: .4rem; }
code { font-family: ui-monospace, monospace; font-size: .92em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; }
dt { font-weight: 600; } dd { margin: 0; overflow-wrap: anywhere; }
"""


def join_page(chain_id: str, genesis_sha256: str, version: str, base_url: str) -> bytes:
    """The page as UTF-8 HTML. ``base_url`` is how the reader reached this node."""
    chain, genesis, url = escape(chain_id), escape(genesis_sha256), escape(base_url)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Join {chain}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Join {chain}</h1>
<p>This is a node of a network that runs and trains a language model together. There is nothing to
sign up for: no accounts, no passwords, no API keys. You make a key on your own computer, and what
you sign with it is yours. The node never sees it.</p>

<h2>Use it</h2>
<p>Install the <code>meshnode</code> command, then:</p>
<pre><code>meshnode key new
meshnode account --gateway {url}
meshnode infer --gateway {url} "What is the capital of France?"</code></pre>
<p>A question costs a little of the network's currency, and the command spends nothing where it
would cost more than a ceiling that you can set. <strong>Questions and answers are public</strong>:
they are kept on the chain for everybody to check.</p>

<h2>Run a node</h2>
<pre><code>python -m meshnode --tracker {url}</code></pre>
<p>Your node checks every block itself, holds what part of the model you let it, and answers for
others.</p>

<h2>Know what you joined</h2>
<dl>
<dt>Chain</dt><dd><code>{chain}</code></dd>
<dt>Genesis</dt><dd><code>{genesis}</code></dd>
<dt>Software</dt><dd>meshnode {escape(version)}</dd>
</dl>
<p>Compare the genesis with somebody you trust before you send money. What this node says of itself:
<a href="/api/network">the network</a>, <a href="/api/model">the model</a>,
<a href="/api/blocks">the latest blocks</a>, <a href="/healthz">its health</a>.</p>
</main>
</body>
</html>
""".encode()
