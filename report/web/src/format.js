// Figures as text, as report/format.go writes them on a terminal.

const trim = (x) => (x >= 100 ? x.toFixed(0) : x.toFixed(1).replace(/\.0$/, ''))

/** A ratio, in per cent. */
export const percent = (ratio) => (ratio * 100).toFixed(1) + '%'

/** Seconds, in the unit that suits. */
export function duration(s) {
  if (s === 0) return '0s'
  if (s < 1) return s.toFixed(2) + 's'
  if (s < 120) return trim(s) + 's'
  if (s < 7200) return trim(s / 60) + 'm'
  if (s < 172800) return trim(s / 3600) + 'h'
  return trim(s / 86400) + 'd'
}

/** A whole number, with its thousands apart. */
export const count = (n) => Math.round(n).toLocaleString('en-US')

/** A number in a few characters. */
export function short(x) {
  if (x < 1e4) return trim(x)
  if (x < 1e6) return trim(x / 1e3) + 'k'
  if (x < 1e9) return trim(x / 1e6) + 'M'
  return trim(x / 1e9) + 'G'
}

/** An amount of GPUs, whole where it is. */
export const gpus = (x) => (Number.isInteger(x) ? count(x) : x < 100 ? x.toFixed(2).replace(/0$/, '') : count(x))

/** A moment of a run: days, hours, minutes and seconds since its zero. */
export function moment(t) {
  const two = (n) => String(Math.floor(n)).padStart(2, '0')
  const days = Math.floor(t / 86400)
  return (days ? days + 'd ' : '') + two((t % 86400) / 3600) + ':' + two((t % 3600) / 60) + (t % 60 ? ':' + two(t % 60) : '')
}

/** Round marks for a time axis from 0 to end: their distance and their text. */
export function timeMarks(length, most) {
  const steps = [
    ['s', 1, [1, 2, 5, 10, 15, 30]],
    ['m', 60, [1, 2, 5, 10, 15, 30]],
    ['h', 3600, [1, 2, 3, 6, 12]],
    ['d', 86400, [1, 2, 5, 7, 14, 30, 60, 90, 180, 365, 1825, 3650]],
  ]
  for (const [unit, seconds, counts] of steps) {
    for (const n of counts) {
      if (length / (n * seconds) <= most) return { step: n * seconds, text: (t) => trim(t / seconds) + unit }
    }
  }
  return { step: length, text: duration }
}
