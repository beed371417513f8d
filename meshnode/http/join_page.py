"""``/join``: one plain page for people who followed an old link (interface 4.2 rule 8).

It has no scripts, no fonts, and only the styles of this node's page (decision 0165): it must work
without other network access, in a screen reader and in a text browser. Values from the chain are
escaped.
"""

from __future__ import annotations

from html import escape


def join_page(chain_id: str, genesis_sha256: str, version: str, base_url: str) -> bytes:
    """The page as UTF-8 HTML. ``base_url`` is how the reader reached this node."""
    chain, genesis, url = escape(chain_id), escape(genesis_sha256), escape(base_url)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Join {chain}</title>
<link rel="icon" href="/page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page/base.css">
<link rel="stylesheet" href="/page/parts.css">
</head>
<body class="alone">
<header class="top"><a class="brand" href="/"><img src="/page/icon.svg" alt="" width="28"
height="28"><span>meshnode</span></a></header>
<main>
<h1>Join {chain}</h1>
<p>This is a node of a network that runs and trains a language model together. There is nothing to
sign up for: no accounts, no passwords, no API keys. You make a key on your own computer, and what
you sign with it is yours. The node never sees it.</p>

<h2>Use it</h2>
<p>Install the <code>meshnode</code> command, then:</p>
<pre tabindex="0"><code>meshnode key new
meshnode account --gateway {url}
meshnode infer --gateway {url} "What is the capital of France?"</code></pre>
<p>A question costs a little of the network's currency, and the command spends nothing where it
would cost more than a ceiling that you can set. <strong>Questions and answers are public</strong>:
they are kept on the chain for everybody to check.</p>

<h2>Run a node</h2>
<pre tabindex="0"><code>python -m meshnode --tracker {url}</code></pre>
<p>Your node checks every block itself, holds what part of the model you let it, and answers for
others.</p>

<h2>Know what you joined</h2>
<dl class="facts">
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
