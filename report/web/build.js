// Builds dist/, or the folder that is named, from src/: the script and the style
// of the page, and the licences of what the script includes. The same sources
// give the same bytes.

import { readFileSync, writeFileSync, readdirSync, statSync } from 'node:fs'
import { build } from 'esbuild'

const dist = process.argv[2] ?? 'dist'
const { metafile } = await build({
  entryPoints: { page: 'src/main.js' },
  outdir: dist,
  bundle: true,
  minify: true,
  charset: 'ascii',
  format: 'iife',
  target: ['chrome105', 'firefox113', 'safari16.4'],
  legalComments: 'none', // they are in LICENCES.txt, whole
  define: { 'process.env.NODE_ENV': '"production"' },
  metafile: true,
  logLevel: 'warning',
})

const packages = new Set()
for (const file of Object.keys(metafile.inputs)) {
  const name = file.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1]
  if (name) packages.add(name)
}
let text = 'page.js includes these packages, under their licences.\n'
for (const name of [...packages].sort()) {
  const dir = `node_modules/${name}/`
  const { version, license } = JSON.parse(readFileSync(dir + 'package.json'))
  text += `\n${'='.repeat(78)}\n${name} ${version} (${license})\n`
  const files = readdirSync(dir, { recursive: true }).filter((f) => /^(licenses\/)?(licen[cs]e|notice)[^/]*$/i.test(f))
  for (const file of files.filter((f) => statSync(dir + f).isFile()).sort()) {
    text += `\n${'-'.repeat(78)}\n${readFileSync(dir + file, 'utf8').replace(/\r\n/g, '\n').trim()}\n`
  }
}
writeFileSync(dist + '/LICENCES.txt', text)
