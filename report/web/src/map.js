// The map of the cluster: every node by leaf group, over time.

import { colours, drawn, inColours } from './charts.js'
import { choice, el, section } from './dom.js'
import { count, moment, percent } from './format.js'
import { cellOf, layout, nodeAt } from './layout.js'
import { unpack } from './pack.js'

const perSecond = 12 // frames, when it plays

/** The section with the map; null when no run has frames. */
export function clusterMap(page) {
  const runs = page.runs.filter((r) => r.cluster >= 0 && page.clusters[r.cluster].nodes > 0)
  if (runs.length === 0) return null
  const canvas = el('canvas', { role: 'img', id: 'map-canvas' })
  const hover = el('div', { class: 'hover', hidden: true })
  const box = el('div', { class: 'map' }, canvas, hover)
  const slider = el('input', { type: 'range', min: 0, value: 0, step: 1, 'aria-label': 'Time on the map', id: 'map-time' })
  const play = el('button', { type: 'button', id: 'map-play' }, 'Play')
  const clock = el('output', { for: 'map-time', class: 'clock' })
  const figures = el('p', { class: 'dim', id: 'map-figures' })
  const view = { page, runs, canvas, hover, box, slider, play, clock, figures, run: runs[0], at: 0 }
  drawn.push(open(view))
  return section('map', 'The cluster over time',
    choice('Policy of the map', runs.map((r) => r.name), (i) => show(view, runs[i])),
    el('div', { class: 'controls' }, play, slider, clock), figures, box, key())
}

/** What the colours say. */
const key = () =>
  el('ul', { class: 'legend' },
    [['idle', 'idle'], ['part', 'partly allocated: fragmented'], ['full', 'wholly allocated'], ['out', 'lost or cordoned']].map(([name, text]) =>
      el('li', {}, el('i', { class: 'chip ' + name }), text)),
    el('li', { class: 'dim' }, 'a square is a node, a block a leaf group'))

async function open(view) {
  view.clusters = await Promise.all(
    view.page.clusters.map(async (c) => JSON.parse(new TextDecoder().decode(await unpack(c.packed)))))
  view.slider.addEventListener('input', () => go(view, +view.slider.value))
  view.play.addEventListener('click', () => toggle(view))
  view.canvas.addEventListener('pointermove', (e) => point(view, e))
  view.canvas.addEventListener('pointerleave', () => (view.hover.hidden = true))
  new ResizeObserver(() => place(view)).observe(view.box)
  await show(view, view.run)
  inColours(() => paint(view))
}

/** Shows a run, at the time that is shown already, or at first the middle. */
async function show(view, run) {
  const t = view.frames ? view.run.frames.t[view.at] : run.frames.t.at(-1) / 2
  const bytes = (run.bytes ??= await unpack(run.frames.packed))
  view.run = run
  view.nodes = view.clusters[run.cluster]
  view.frames = { t: run.frames.t, bytes }
  view.slider.max = run.frames.t.length - 1
  place(view)
  const after = run.frames.t.findIndex((x) => x >= t)
  go(view, after < 0 ? run.frames.t.length - 1 : after)
  view.box.dataset.run = run.name
}

function go(view, at) {
  view.at = at
  view.slider.value = at
  const t = moment(view.frames.t[at])
  view.slider.setAttribute('aria-valuetext', t)
  view.clock.textContent = t
  tell(view)
  paint(view)
}

/** A node's byte in the frame that is shown. */
const byteOf = (view, node) => view.frames.bytes[node * view.frames.t.length + view.at]

/** Says the figures of the frame. */
function tell(view) {
  const { full, cordoned } = view.run.frames
  const n = { idle: 0, part: 0, full: 0, out: 0 }
  let held = 0
  let all = 0
  view.nodes.gpus.forEach((gpus, i) => {
    const b = byteOf(view, i)
    if (b >= cordoned) return n.out++
    n[b === 0 ? 'idle' : b === full ? 'full' : 'part']++
    held += (gpus * b) / full
    all += gpus
  })
  const parts = [`GPUs allocated: ${percent(all ? held / all : 0)}`, `nodes wholly allocated: ${count(n.full)}`,
    `partly: ${count(n.part)}`, `idle: ${count(n.idle)}`]
  if (n.out) parts.push(`lost or cordoned: ${count(n.out)}`)
  view.figures.textContent = parts.join(' · ')
  view.canvas.setAttribute('aria-label', `Map of ${count(view.nodes.names.length)} nodes at ${moment(view.frames.t[view.at])}. ${parts.join(', ')}`)
}

/** Lays the map out for the width there is. */
function place(view) {
  const width = view.box.clientWidth
  if (!view.frames || width === 0 || (view.map?.width === width && view.map.nodes === view.nodes)) return
  view.map = { ...layout(view.nodes, width), width, nodes: view.nodes }
  const scale = window.devicePixelRatio || 1
  view.canvas.width = Math.round(width * scale)
  view.canvas.height = Math.round(view.map.height * scale)
  view.canvas.style.height = view.map.height + 'px'
  if (view.clock.textContent) paint(view)
}

function paint(view) {
  const { map, canvas } = view
  if (!map) return
  const c = colours()
  const scale = window.devicePixelRatio || 1
  const g = canvas.getContext('2d')
  g.setTransform(scale, 0, 0, scale, 0, 0)
  g.clearRect(0, 0, map.width, map.height)
  g.fillStyle = c.of('block')
  for (const b of map.blocks) g.fillRect(b.x, b.y, b.w, b.h)
  g.fillStyle = c.dim
  g.font = '600 12px system-ui, sans-serif'
  for (const h of map.headings) {
    const nodes = [...h.groups.values()].reduce((n, m) => n + m.length, 0)
    g.fillText(`${h.text} · ${count(nodes)} ${nodes === 1 ? 'node' : 'nodes'}`, 0, h.y + 14)
  }
  const colour = ramp(c, view.run.frames)
  const size = map.cell - map.gap
  for (const b of map.blocks) {
    b.members.forEach((node, k) => {
      const { x, y } = cellOf(map, b, k)
      g.fillStyle = colour[byteOf(view, node)]
      g.fillRect(x, y, size, size)
    })
  }
}

/** The colour of each byte. */
function ramp(c, { full, cordoned }) {
  return Array.from({ length: 256 }, (_, b) => {
    if (b >= cordoned) return c.of('out')
    if (b === 0) return c.of('idle')
    if (b === full) return c.of('full')
    return c.of('part' + Math.min(4, Math.floor((b / full) * 4) + 1))
  })
}

/** Names the node under the pointer. */
function point(view, event) {
  const { map, nodes, hover } = view
  const node = map ? nodeAt(map, event.offsetX, event.offsetY) : -1
  hover.hidden = node < 0
  if (node < 0) return
  const { full, cordoned, lost } = view.run.frames
  const b = byteOf(view, node)
  const held = Math.round((nodes.gpus[node] * b * 100) / full) / 100
  const state = b === lost ? 'lost' : b === cordoned ? 'cordoned' : `${held} of ${nodes.gpus[node]} GPUs allocated`
  hover.replaceChildren(el('b', {}, nodes.names[node]), el('div', {}, state),
    el('div', { class: 'dim' }, nodes.models[nodes.model[node]], ' · ', nodes.leaves[nodes.leaf[node]] ?? 'no leaf group'))
  const left = Math.min(Math.max(event.offsetX + 14, 0), Math.max(0, map.width - hover.offsetWidth))
  hover.style.left = left + 'px'
  hover.style.top = event.offsetY + 18 + 'px'
}

/** Starts to play, or stops. */
function toggle(view) {
  const playing = view.play.textContent !== 'Play'
  view.play.textContent = playing ? 'Play' : 'Pause'
  if (playing) return
  const last = view.frames.t.length - 1
  let next = view.at >= last ? 0 : view.at
  let shown = 0
  const step = (now) => {
    if (view.play.textContent === 'Play') return
    if (now - shown >= 1000 / perSecond) {
      shown = now
      go(view, Math.min(next, last))
      next = view.at + 1
      if (next > last) view.play.textContent = 'Play'
    }
    requestAnimationFrame(step)
  }
  requestAnimationFrame(step)
}
