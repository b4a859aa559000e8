// Where nodes are on the map: leaf groups are blocks of cells, by GPU model.

const heading = 22

/**
 * Lays the nodes of a cluster out in so many pixels of width. The cells are as
 * large as they can be for the map to be on a screen as a whole; small ones may
 * fill more of it.
 */
export function layout(nodes, width) {
  const pools = poolsOf(nodes)
  for (let cell = 24; ; cell--) {
    const map = arrange(pools, nodes.models, width, cell)
    if (map.height <= (cell > 5 ? 640 : 900) || cell === 3) return map
  }
}

/** The nodes by model and leaf group, in their order. */
function poolsOf(nodes) {
  const pools = new Map()
  nodes.names.forEach((_, i) => {
    const model = nodes.model[i]
    if (!pools.has(model)) pools.set(model, new Map())
    const groups = pools.get(model)
    const leaf = nodes.leaf[i]
    if (!groups.has(leaf)) groups.set(leaf, [])
    groups.get(leaf).push(i)
  })
  return pools
}

function arrange(pools, models, width, cell) {
  const pad = cell >= 8 ? 3 : 1
  const gap = cell >= 8 ? 6 : Math.max(2, cell - 1)
  const map = { cell, gap: cell >= 4 ? 1 : 0.5, blocks: [], headings: [], height: 0 }
  let y = 0
  for (const [model, groups] of pools) {
    if (pools.size > 1) {
      map.headings.push({ y, text: models[model], groups })
      y += heading
    }
    let x = 0
    let row = 0
    for (const [leaf, members] of groups) {
      const most = Math.floor((width - 2 * pad) / cell)
      const columns = Math.min(most, Math.ceil(Math.sqrt(members.length * 2)))
      const rows = Math.ceil(members.length / columns)
      const w = columns * cell + 2 * pad
      const h = rows * cell + 2 * pad
      if (x > 0 && x + w > width) {
        x = 0
        y += row + gap
        row = 0
      }
      map.blocks.push({ leaf, members, columns, x, y, w, h, pad })
      x += w + gap
      row = Math.max(row, h)
    }
    y += row + gap + (pools.size > 1 ? 6 : 0)
  }
  map.height = y
  return map
}

/** The cell of the k-th node of a block. */
export const cellOf = (map, block, k) => ({
  x: block.x + block.pad + (k % block.columns) * map.cell,
  y: block.y + block.pad + Math.floor(k / block.columns) * map.cell,
})

/** The node at a point of the map, and -1 where there is none. */
export function nodeAt(map, x, y) {
  for (const b of map.blocks) {
    if (x < b.x || x > b.x + b.w || y < b.y || y > b.y + b.h) continue
    const column = Math.floor((x - b.x - b.pad) / map.cell)
    const row = Math.floor((y - b.y - b.pad) / map.cell)
    if (column < 0 || column >= b.columns || row < 0) return -1
    return b.members[row * b.columns + column] ?? -1
  }
  return -1
}
