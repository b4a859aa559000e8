// The users of queues: what they received of what they deserved.

import { choice, el, section, table } from './dom.js'
import { count, percent, short } from './format.js'

const shownAtFirst = 10

/** A table of a run; null when no job names its user. */
export function usersOf(page) {
  const runs = page.runs.filter((r) => r.summary.fairness?.users)
  if (runs.length === 0) return null
  const place = el('div', {})
  const show = (r) => place.replaceChildren(rows(r.summary.fairness))
  show(runs[0])
  return section('users', 'Users: GPU time received and deserved',
    el('p', { class: 'dim' }, 'What the jobs of a queue deserve is divided equally among the users who have jobs there at the time, none more than the user requests. ' +
      'The index is received / deserved; those who lack most come first.'),
    choice('Policy of the users', runs.map((r) => r.name), (i) => show(runs[i])), place)
}

function rows(f) {
  const most = Math.max(...f.by_user.map((u) => Math.max(u.received_gpu_hours, u.deserved_gpu_hours)))
  const bar = (hours) => el('div', { class: 'bar' }, el('span', {}, short(hours)), el('i', { style: `width: ${(100 * hours) / (most || 1)}%` }))
  const header = ['user', 'queue', 'jobs', 'received GPU-h', 'deserved GPU-h', 'index', 'met']
  const all = f.by_user.map((u) => [u.user || '(none)', u.queue, count(u.jobs), bar(u.received_gpu_hours), bar(u.deserved_gpu_hours), u.index.toFixed(3), percent(u.met)])
  const rest = all.slice(shownAtFirst)
  const left = f.users.users - all.length
  return el('div', {},
    el('p', {}, `${count(f.users.users)} users lack ${percent(f.users.unfairness)} of what they deserved; their indexes are from ${f.users.index_min.toFixed(3)} to ${f.users.index_max.toFixed(3)}.`),
    table('Users', header, all.slice(0, shownAtFirst)),
    rest.length ? el('details', {}, el('summary', {}, `${rest.length} more` + (left > 0 ? `, of ${count(f.users.users)}` : '')), table('More users', header, rest)) : null)
}
