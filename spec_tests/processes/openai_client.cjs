// What a user of OpenAI's package for Node.js does; test_openai_clients.py runs it.
const assert = require("node:assert/strict");
const OpenAI = require("openai");

const [address, token, text] = process.argv.slice(2);
const { model, schema, tool, unusual } = JSON.parse(text);
const client = new OpenAI({ baseURL: address, apiKey: token, maxRetries: 0 });
const messages = [{ role: "user", content: "What is the capital of France?" }];

async function main() {
  const models = await client.models.list();
  assert.deepEqual(models.data.map((one) => one.id), [model]);
  console.log("models");

  const whole = await client.chat.completions.create({ model, messages, temperature: 0 });
  assert.match(whole.choices[0].message.content, /Paris/);
  console.log("chat");

  const stream = await client.chat.completions.create({
    model, messages, temperature: 0, stream: true, stream_options: { include_usage: true },
  });
  let content = "", usage = null;
  for await (const chunk of stream) {
    content += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(content, whole.choices[0].message.content);
  assert.deepEqual(usage, whole.usage);
  console.log("stream");

  const format = { type: "json_schema", json_schema: { name: "answer", schema } };
  const runner = client.chat.completions.stream({ model, messages, response_format: format });
  const final = JSON.parse(await runner.finalContent());
  assert.equal(final.text, unusual);
  console.log("schema");

  const calling = client.chat.completions.stream({
    model, messages, tools: [tool], tool_choice: "required",
  });
  const message = await calling.finalMessage();
  assert.equal(message.tool_calls[0].function.name, "weather");
  assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: "Paris" });
  console.log("tools");

  await assert.rejects(
    client.chat.completions.create({ model: "gpt-4", messages }),
    (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found",
  );
  await assert.rejects(
    new OpenAI({ baseURL: address, apiKey: "nobody", maxRetries: 0 }).models.list(),
    (error) => error instanceof OpenAI.AuthenticationError,
  );
  console.log("errors");
}

main().catch((error) => { console.error(error); process.exit(1); });
