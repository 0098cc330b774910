// Writes stack.mjs and its packages into one file, stack.bundle.mjs. The tests start the program several hundred times,
// and Node needs half the time to load one file. The packages are bundled unmodified and not minified. solc is not
// bundled, because it is loaded only when the contracts change.

import { rename } from 'node:fs/promises';

import { build } from 'esbuild';

const path = (name) => new URL(`./${name}`, import.meta.url).pathname;
// The file is written under another name and renamed, because another process may be reading it.
const aside = path(`stack.bundle.${process.pid}.tmp`);

await build({
  entryPoints: [path('stack.mjs')],
  outfile: aside,
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node20',
  external: ['solc'],
  // CommonJS packages in the bundle call `require`, which modules don't have.
  banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
});
await rename(aside, path('stack.bundle.mjs'));
