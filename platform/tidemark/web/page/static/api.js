// Requests to the server. A token is kept for this tab only; answers that have not changed are not sent again.

const TOKEN = "tidemark-token";
const TIMEOUT_MS = 15_000;
const tags = new Map();

/** The server wants a token, or another one. */
export class Unauthorized extends Error {}

/** The server answered with an error; `status` is HTTP's. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => {
    sessionStorage.removeItem(TOKEN);
    tags.clear();
  },
};

async function problem(response) {
  try {
    const said = await response.json();
    return said.detail ?? said.title ?? response.statusText;
  } catch {
    return response.statusText;
  }
}

/**
 * Return {data, received} of a path below api/v1: the same as before where the server says that nothing has changed.
 * `received` is when the data came, by this page's monotonic clock.
 * Throws Unauthorized, Refused, or what fetch throws where the server cannot be reached.
 */
export async function get(path) {
  const before = tags.get(path);
  const headers = { Accept: "application/json" };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (before?.tag) headers["If-None-Match"] = before.tag;
  const response = await fetch(`api/v1/${path}`, { headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (response.status === 304 && before) return before;
  if (response.status === 401) throw new Unauthorized();
  if (!response.ok) throw new Refused(response.status, await problem(response));
  const answer = { tag: response.headers.get("ETag"), data: await response.json(), received: performance.now() };
  tags.set(path, answer);
  return answer;
}
