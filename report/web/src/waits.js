// The longest waits, and why.

import { choice, el, section, table } from './dom.js'
import { duration, gpus, moment } from './format.js'

const shownAtFirst = 10

/** A table of a run; null when nobody waited. */
export function longestWaits(page) {
  const runs = page.runs.filter((r) => r.waits?.length)
  if (runs.length === 0) return null
  const place = el('div', {})
  const show = (r) => place.replaceChildren(rows(r))
  show(runs[0])
  return section('longest', 'The longest waits, and why',
    el('p', { class: 'dim' }, 'From submission to the first start. Now and then in the run the engine was asked why the job waits: the reason is what it said most often, ' +
      'with the numbers that it gave with it last.'),
    choice('Policy of the longest waits', runs.map((r) => r.name), (i) => show(runs[i])), place)
}

function rows(r) {
  const most = r.waits[0].wait
  const reason = (w) => {
    if (w.asked === 0) return el('span', { class: 'dim' }, 'not asked while this job waited')
    const times = w.asked === 1 ? 'asked once' : `${w.times} of ${w.asked} times`
    return el('div', { class: 'reason' }, el('b', {}, w.reason), el('span', { class: 'dim' }, ` ${times}`),
      el('div', { class: 'dim' }, `at ${moment(Math.round(w.at))}: ${w.detail}`))
  }
  const bar = (w) => el('div', { class: 'bar' }, el('span', {}, duration(w.wait) + (w.waits ? ' so far' : '')), el('i', { style: `width: ${(100 * w.wait) / most}%` }))
  const header = ['job', 'GPUs', 'waited', { text: 'why', class: 'left' }, 'queue', 'kind', 'submitted']
  const all = r.waits.map((w) => [w.job, gpus(w.gpus), bar(w), { text: reason(w), class: 'left' }, w.queue, `${w.kind}, ${w.class}`, moment(Math.round(w.submit))])
  const rest = all.slice(shownAtFirst)
  return el('div', {}, table('The longest waits', header, all.slice(0, shownAtFirst)),
    rest.length ? el('details', {}, el('summary', {}, `${rest.length} more`), table('More of the longest waits', header, rest)) : null)
}
