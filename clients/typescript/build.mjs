// Builds the package into `dist`, which is published by `npm run build && npm publish ./dist`. The package.json of this
// folder is private and lists no files, so nothing can be published without a build, even if npm runs no scripts.

import { execFileSync } from 'node:child_process';
import { copyFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';

process.chdir(import.meta.dirname);
rmSync('dist', { recursive: true, force: true });
// ES modules for Node and browsers, and CommonJS.
for (const project of ['tsconfig.json', 'tsconfig.cjs.json']) {
  execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', '--project', project], { stdio: 'inherit' });
}
writeJson('dist/cjs/package.json', { type: 'commonjs' });

const { private: _, files: __, scripts: ___, devDependencies: ____, ...published } = JSON.parse(readFileSync('package.json', 'utf8'));
writeJson('dist/package.json', {
  ...published,
  exports: {
    '.': {
      import: { types: './index.d.ts', default: './index.js' },
      require: { types: './cjs/index.d.ts', default: './cjs/index.js' },
    },
  },
  // For tools that do not support `exports`.
  main: './cjs/index.js',
  types: './cjs/index.d.ts',
});
for (const name of ['README.md', 'CHANGELOG.md']) copyFileSync(name, `dist/${name}`);
copyFileSync('../../LICENSE', 'dist/LICENSE');

function writeJson(path, value) {
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}
