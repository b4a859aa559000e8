// What queues held over time, against their quotas.

import { overTime } from './charts.js'
import { asTable, el, legend, section } from './dom.js'
import { count, gpus, percent, short } from './format.js'

const mean = (all) => (all.length ? all.reduce((a, b) => a + b, 0) / all.length : 0)

/** A plot a queue; null when no queue had jobs. */
export function queueUse(page) {
  if (page.queues.length === 0) return null
  const one = page.runs.length === 1
  const name = (q) => (q.others ? `${count(q.others)} other queues` : q.parent ? `${q.name}, with those below` : q.name)
  const plots = page.queues.map((q, i) => {
    const series = page.runs.map((r, k) => ({ name: r.name, colour: k, t: r.queue_times ?? [], y: r.queues[i] }))
    const note = [`mean ${page.runs.map((r) => short(mean(r.queues[i]))).join(', ')} GPUs`, q.quota === null ? null : `quota ${gpus(q.quota)}`]
    return overTime({
      id: 'queue-' + i, title: name(q), note: note.filter(Boolean).join(' · '), height: 110, small: true, group: 'queues', series,
      text: short, tipText: (v) => gpus(v) + ' GPUs', most: Math.max(q.quota ?? 0, 2),
      marks: q.quota === null ? null : [{ yAxis: q.quota }],
    })
  })
  const rows = page.queues.flatMap((q, i) => page.runs.map((r) => {
    const held = r.queues[i]
    const over = held.filter((x) => x > q.quota).length
    return [name(q), ...(one ? [] : [r.name]), q.quota === null ? 'none' : gpus(q.quota), short(mean(held)), short(Math.max(0, ...held)),
      q.quota ? percent(mean(held) / q.quota) : '', q.quota === null ? '' : percent(over / Math.max(1, held.length))]
  }))
  const quotas = page.queues.some((q) => q.quota !== null)
  return section('queues', 'Queues: GPUs held' + (quotas ? ', and their quotas' : ''),
    el('p', { class: 'dim' }, 'GPUs that the jobs of each queue hold, those of all models together. ' +
      (quotas ? 'The dashed line is the nominal quota: above it, a queue borrows.' : 'No queue has a quota.')),
    one ? null : legend(page.runs.map((r) => r.name)),
    el('div', { class: 'grid small' }, plots),
    asTable('GPUs held by queue', ['queue', ...(one ? [] : ['policy']), 'quota', 'mean', 'most', 'mean to quota', 'time above quota'], rows))
}
