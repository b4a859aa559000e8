// What report/pack.go compressed.

/** The bytes of a Base64 text of gzip-compressed data. */
export async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0))
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}
