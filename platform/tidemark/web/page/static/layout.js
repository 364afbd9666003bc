// Places a graph in layers from left to right. Pure: sizes in, coordinates out.

// The gap has room for the names of side outputs.
export const BOX = { width: 202, gapX: 70, gapY: 20, wire: 12 };

/** Return the layer of each node by id: the longest way from a node without inputs; those without consumers nearby move to theirs. */
function layersOf(nodes, edges) {
  const layer = new Map(nodes.map((node) => [node.id, 0]));
  // Nodes are in order, inputs before consumers, so one walk is enough.
  for (const node of nodes) {
    for (const edge of edges) {
      if (edge.start === node.id) layer.set(edge.end, Math.max(layer.get(edge.end), layer.get(node.id) + 1));
    }
  }
  for (const node of nodes.filter((each) => each.role === "source")) {
    const ends = edges.filter((edge) => edge.start === node.id).map((edge) => layer.get(edge.end));
    if (ends.length) layer.set(node.id, Math.min(...ends) - 1);
  }
  return layer;
}

/** Return columns of items: nodes, and a wire for each layer that an edge passes. */
function columnsOf(nodes, edges, heightOf) {
  const layer = layersOf(nodes, edges);
  const columns = Array.from({ length: Math.max(0, ...layer.values()) + 1 }, () => []);
  const items = new Map();
  for (const node of nodes) {
    const item = { node, height: heightOf(node), before: [], after: [] };
    items.set(node.id, item);
    columns[layer.get(node.id)].push(item);
  }
  const paths = edges.map((edge) => {
    const path = [items.get(edge.start)];
    for (let at = layer.get(edge.start) + 1; at < layer.get(edge.end); at += 1) {
      const wire = { node: null, height: BOX.wire, before: [], after: [] };
      columns[at].push(wire);
      path.push(wire);
    }
    path.push(items.get(edge.end));
    path.slice(1).forEach((item, at) => {
      item.before.push(path[at]);
      path[at].after.push(item);
    });
    return { edge, path };
  });
  return { columns, items, paths };
}

const middle = (item) => item.y + item.height / 2;
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function stack(column) {
  let y = 0;
  for (const item of column) {
    item.y = y;
    y += item.height + BOX.gapY;
  }
}

/** Order a column by where its neighbours are; those without neighbours keep their place. */
function order(column, side) {
  column.forEach((item, at) => {
    item.rank = item[side].length ? mean(item[side].map(middle)) : item.y;
    item.at = at;
  });
  column.sort((one, other) => one.rank - other.rank || one.at - other.at);
  stack(column);
}

/**
 * Move the items of a column to the height of their neighbours, as near as their order and the gaps between them allow: items that
 * would overlap are moved together, by the mean of what they want (the pool of adjacent violators).
 */
function align(column, side) {
  const pools = [];
  let offset = 0;
  for (const item of column) {
    const wanted = item[side].length ? mean(item[side].map(middle)) - item.height / 2 : item.y;
    let pool = { at: wanted - offset, items: [[item, offset]] };
    while (pools.length && pools.at(-1).at > pool.at) {
      const before = pools.pop();
      const count = before.items.length + pool.items.length;
      pool = { at: (before.at * before.items.length + pool.at * pool.items.length) / count, items: [...before.items, ...pool.items] };
    }
    pools.push(pool);
    offset += item.height + BOX.gapY;
  }
  for (const { at, items } of pools) for (const [item, below] of items) item.y = at + below;
}

/** Return the parts of a graph that no edge connects, each {nodes, edges}, in the order of their first nodes. */
function partsOf(nodes, edges) {
  const part = new Map(nodes.map((node, at) => [node.id, at]));
  for (let changed = true; changed; ) {
    changed = false;
    for (const { start, end } of edges) {
      const least = Math.min(part.get(start), part.get(end));
      changed ||= part.get(start) !== least || part.get(end) !== least;
      part.set(start, least).set(end, least);
    }
  }
  return [...new Set(part.values())].map((which) => ({
    nodes: nodes.filter((node) => part.get(node.id) === which),
    edges: edges.filter((edge) => part.get(edge.start) === which),
  }));
}

function placePart({ nodes, edges }, heightOf) {
  const { columns, items, paths } = columnsOf(nodes, edges, heightOf);
  columns.forEach(stack);
  for (let sweep = 0; sweep < 4; sweep += 1) {
    columns.forEach((column) => order(column, "before"));
    [...columns].reverse().forEach((column) => order(column, "after"));
  }
  columns.forEach((column) => align(column, "before"));
  [...columns].reverse().forEach((column) => align(column, "after"));
  columns.forEach((column) => align(column, "before"));
  const top = Math.min(...columns.flat().map((item) => item.y));
  columns.forEach((column, at) => {
    for (const item of column) {
      item.x = at * (BOX.width + BOX.gapX);
      item.y -= top;
    }
  });
  return { columns, items, paths };
}

/**
 * Return {width, height, boxes, wires}: of each node x, y, width and height; of each edge the points that it passes.
 * `heightOf` returns a node's height. Parts that no edge connects are one below the other.
 */
export function place(nodes, edges, heightOf) {
  const boxes = new Map();
  const wires = [];
  let [width, height] = [0, 0];
  for (const part of partsOf(nodes, edges)) {
    const { columns, items, paths } = placePart(part, heightOf);
    const all = columns.flat();
    for (const item of all) item.y += height;
    for (const [id, item] of items) boxes.set(id, { x: item.x, y: item.y, width: BOX.width, height: item.height });
    for (const { edge, path } of paths) {
      const points = path.flatMap((item, at) => {
        const [left, right] = [[item.x, middle(item)], [item.x + BOX.width, middle(item)]];
        return at === 0 ? [right] : at === path.length - 1 ? [left] : [left, right];
      });
      wires.push({ edge, points });
    }
    height = Math.max(...all.map((item) => item.y + item.height)) + BOX.gapY;
    width = Math.max(width, columns.length * (BOX.width + BOX.gapX) - BOX.gapX);
  }
  return { width, height: height - BOX.gapY, boxes, wires };
}
