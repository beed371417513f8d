// Reads a chain and broadcasts with Comet38Client of @cosmjs/tendermint-rpc.
//
//     node comet_client.cjs URL [TRANSACTION...]     transactions in base64; the last one twice
//
// Prints one JSON document with what the client understood.

const { Comet38Client, connectComet } = require("@cosmjs/tendermint-rpc");

const text = (bytes) => Buffer.from(bytes).toString("utf8");
const hex = (bytes) => Buffer.from(bytes).toString("hex").toUpperCase();

async function outcome(call) {
  try {
    return await call();
  } catch (error) {
    return { refused: String(error.message) };
  }
}

async function main() {
  const [url, ...transactions] = process.argv.slice(2);
  const client = await connectComet(url);
  const status = await client.status();
  const height = status.syncInfo.latestBlockHeight;
  const block = await client.block(height);
  const commit = await client.commit(height);
  const validators = await client.validatorsAll(height);
  const summary = await client.abciQuery({ path: "/summary", data: new Uint8Array() });
  const broadcasts = [];
  for (const [index, raw] of transactions.entries()) {
    const tx = Buffer.from(raw, "base64");
    if (index === 0) {
      const found = await client.broadcastTxCommit({ tx });
      broadcasts.push({ code: found.checkTx.code, height: found.height, hash: hex(found.hash) });
    } else {
      const found = await client.broadcastTxSync({ tx });
      broadcasts.push({ code: found.code, log: found.log, hash: hex(found.hash) });
      broadcasts.push(await outcome(() => client.broadcastTxSync({ tx })));
    }
  }
  const after = await client.status();
  console.log(
    JSON.stringify({
      is38: client instanceof Comet38Client,
      network: status.nodeInfo.network,
      moniker: status.nodeInfo.moniker,
      listen: status.nodeInfo.listenAddr,
      version: status.nodeInfo.version,
      power: String(status.validatorInfo.votingPower),
      height,
      later: after.syncInfo.latestBlockHeight,
      earliest: status.syncInfo.earliestBlockHeight,
      blockHash: hex(block.blockId.hash),
      chain: block.block.header.chainId,
      appHash: hex(block.block.header.appHash),
      committed: hex(commit.commit.blockId.hash),
      signatures: commit.commit.signatures.filter((one) => one.signature).length,
      validators: validators.validators.map((one) => String(one.votingPower)),
      total: validators.total,
      summary: JSON.parse(text(summary.value)),
      genesis: await outcome(() => client.genesis()),
      tooHigh: await outcome(() => client.block(height + 1000000)),
      broadcasts,
    }),
  );
  client.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
