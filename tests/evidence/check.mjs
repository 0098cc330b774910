// Verifies the statements of a sample with another JOSE library (jose of npm) and the published key set.
//
//     check.mjs <folder>   as shared/evidence/examples/evidence_sample.rs writes it
import { readFileSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { calculateJwkThumbprint, compactVerify, createLocalJWKSet } from 'jose'

const [folder] = process.argv.slice(2)
if (!folder) throw new Error('check.mjs <folder>')
const jwks = JSON.parse(readFileSync(join(folder, 'jwks.json'), 'utf8'))
for (const key of jwks.keys) {
  if (key.kid !== await calculateJwkThumbprint(key)) throw new Error(`${key.kid} is no thumbprint`)
}
// Finds the key by `kid` and `alg`.
const keys = createLocalJWKSet(jwks)
const verified = (statement) => compactVerify(statement, keys, { algorithms: ['ES256'] })

// Each entry is a statement after its length of 16 bits.
const entriesOf = (bundle) => {
  const entries = []
  for (let at = 0; at < bundle.length;) {
    const length = bundle.readUInt16BE(at)
    entries.push(bundle.subarray(at + 2, at + 2 + length).toString('ascii'))
    at += 2 + length
  }
  return entries
}
const bundles = join(folder, 'log/tile/entries')
const files = readdirSync(bundles, { recursive: true }).map((name) => join(bundles, name))
const entries = files.filter((file) => statSync(file).isFile()).flatMap((file) => entriesOf(readFileSync(file)))
const kinds = new Set()
for (const entry of entries) {
  const { payload, protectedHeader } = await verified(entry)
  JSON.parse(new TextDecoder().decode(payload))
  kinds.add(`${protectedHeader.alg} ${protectedHeader.typ}`)
}
if (kinds.size !== 2) throw new Error(`only ${[...kinds]}`)
const statement = readFileSync(join(folder, 'statement.jws'), 'utf8')
if (!entries.includes(statement)) throw new Error('the statement is not in the log')
await verified(statement)
console.log(`jose: ${new Set(entries).size} statements (${[...kinds].sort().join(', ')})`)

const [header, , signature] = statement.split('.')
const other = entries.find((entry) => entry !== statement).split('.')[1]
const renamed = Buffer.from(JSON.stringify({ ...JSON.parse(Buffer.from(header, 'base64url')), kid: 'other' })).toString('base64url')
for (const [what, wrong] of [
  ['another payload', `${header}.${other}.${signature}`],
  ['an unknown key', statement.replace(header, renamed)],
  ['no signature', statement.slice(0, -signature.length)],
]) {
  const refused = await verified(wrong).then(() => null, (error) => error.code)
  if (!refused) throw new Error(`${what} was accepted`)
  console.log(`  ${what}: refused (${refused})`)
}
