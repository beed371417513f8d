// Requests to this node, and the token that the user entered. The token is kept in this tab only.

const KEPT = "meshnode.token";

export const token = {
  get: () => sessionStorage.getItem(KEPT) ?? "",
  set(value) {
    if (value) sessionStorage.setItem(KEPT, value); else sessionStorage.removeItem(KEPT);
    dispatchEvent(new Event("token"));
  },
};

/** A failure in words that say what to do. */
export class Refused extends Error {
  constructor(status, code, message, details, retry) {
    super(message);
    Object.assign(this, { status, code, details: details ?? {}, retry });
  }
}

function words(status, error, retry) {
  const said = error?.message ?? (typeof error === "string" ? error : "");
  if (status === 401) return "The node does not accept this token. It may have expired or been revoked: enter another one.";
  if (status === 402) return `The account has ${error.details?.available} and this may cost up to ${error.details?.required}. Ask for fewer tokens, or pay something into the account.`;
  if (status === 403) return said || "This token may not do that. Ask whoever runs the node for one that may.";
  if (status === 429) return `The node is busy (${said || "too many requests"}). Try again${retry ? ` in ${retry} s` : " in a moment"}.`;
  if (status === 503) return `The node cannot do that now: ${said || "it is starting or stopping"}. Try again in a few seconds.`;
  if (status >= 500) return "The node failed at this. Its log says why.";
  const reason = error?.details?.reason;
  return reason && error.details.field !== "request" ? `${error.details.field} ${reason}` : said || `The node answered with status ${status}.`;
}

/** Send a request; returns the response. Raises Refused. */
export async function send(path, { method = "GET", body, signal, headers = {} } = {}) {
  const sent = { Accept: "application/json", ...headers };
  if (token.get()) sent.Authorization = `Bearer ${token.get()}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, signal, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "UNREACHABLE", "The node does not answer. Is it still running? This page goes on by itself when it is back.");
  }
  if (response.ok) return response;
  const retry = Number(response.headers.get("Retry-After")) || 0;
  const error = (await response.json().catch(() => ({}))).error;
  throw new Refused(response.status, error?.code ?? "", words(response.status, error, retry), error?.details, retry);
}

export const ask = async (path, options) => (await send(path, options)).json();

/** The server-sent events of a response: `{id, event, data}` or `{comment}`. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const event = { id: "", event: "message", data: "" };
        for (const line of part.split("\n")) {
          if (line.startsWith(":")) event.comment = line.slice(1).trim();
          else if (line.startsWith("data: ")) event.data += line.slice(6);
          else if (line.startsWith("event: ")) event.event = line.slice(7);
          else if (line.startsWith("id: ")) event.id = line.slice(4);
        }
        if (event.comment !== undefined || event.data) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
