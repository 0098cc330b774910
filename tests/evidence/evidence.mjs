// Verifies the statements of a file of evidence with jose.
//
//     node evidence.mjs <file> <key set>
import { readFileSync } from 'node:fs'
import { compactVerify, createLocalJWKSet } from 'jose'

const [file, jwks] = process.argv.slice(2).map((path) => JSON.parse(readFileSync(path, 'utf8')))
const keys = createLocalJWKSet(jwks)
for (const signed of [file.decision, file.receipt, ...file.changes]) {
  if (signed === null) continue
  const { payload, protectedHeader } = await compactVerify(signed.statement, keys, { algorithms: ['ES256'] })
  const { statement, result, change = 'confirmed' } = JSON.parse(new TextDecoder().decode(payload))
  console.log(`jose: ${statement}, ${result ?? change}, signed by ${protectedHeader.kid}`)
}
