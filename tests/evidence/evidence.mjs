// Verifies the statements of a file of evidence by jose.
//
//     node evidence.mjs <file> <key set>
import { readFileSync } from 'node:fs'
import { compactVerify, createLocalJWKSet } from 'jose'

const [file, jwks] = process.argv.slice(2).map((path) => JSON.parse(readFileSync(path, 'utf8')))
const keys = createLocalJWKSet(jwks)
for (const part of ['decision', 'receipt']) {
  if (file[part] === null) continue
  const { payload, protectedHeader } = await compactVerify(file[part].statement, keys, { algorithms: ['ES256'] })
  const { statement, result = 'confirmed' } = JSON.parse(new TextDecoder().decode(payload))
  console.log(`jose: ${statement}, ${result}, signed by ${protectedHeader.kid}`)
}
