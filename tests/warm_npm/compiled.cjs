// Called before npm is loaded, whose path is process.argv[1]: npm's modules are compiled, and looked for, once in a
// run of the tests. What npm runs, and in which order, stays what it is.
//
// What is kept lies in one file a subcommand, in a folder of the run: nothing of it can be old.
'use strict'
const fs = require('node:fs')
const Module = require('node:module')
const path = require('node:path')
const vm = require('node:vm')

module.exports = function (folder) {
  const npm = path.join(fs.realpathSync(process.argv[1]), '../../')
  if (process.argv.slice(2).join() === '--version') {
    // Asked before each install: npm would load its settings first, and then print the same.
    console.log(require(path.join(npm, 'package.json')).version)
    process.exit()
  }
  const verb = process.argv.slice(2).find((word) => /^[a-z-]+$/.test(word)) ?? 'none'
  const file = path.join(folder, verb)
  const scripts = new Map() // as this process loaded them
  let kept = new Map() // file of a module → what V8 made of it
  let places = {} // folder, NUL and what is required there → file of the module
  let isNew = false

  // Four bytes, the length of an index in JSON, the index, and what it counts.
  function read() {
    const all = fs.readFileSync(file)
    const start = 4 + all.readUInt32LE(0)
    const index = JSON.parse(all.toString('utf8', 4, start))
    let from = start
    for (const [name, length] of index.sizes) kept.set(name, all.subarray(from, (from += length)))
    places = index.places
  }

  function write() {
    for (const [name, script] of scripts) kept.set(name, script.createCachedData())
    const sizes = [...kept].map(([name, made]) => [name, made.length])
    const index = Buffer.from(JSON.stringify({ sizes, places }))
    const head = Buffer.alloc(4)
    head.writeUInt32LE(index.length)
    const temporary = `${file}.${process.pid}`
    fs.writeFileSync(temporary, Buffer.concat([head, index, ...kept.values()]))
    fs.renameSync(temporary, file) // others are reading it
  }

  try {
    read()
  } catch {
    kept = new Map() // the first of its subcommand
  }

  const compile = Module.prototype._compile
  Module.prototype._compile = function (content, filename, ...more) {
    // V8 forgets, in what it keeps, how `import()` finds its modules.
    if (!filename.startsWith(npm) || more[0] === 'module' || /\bimport\s*\(/.test(content))
      return compile.call(this, content, filename, ...more)
    const text = Module.wrap(content.replace(/^#!.*/, ''))
    const script = new vm.Script(text, { filename, cachedData: kept.get(filename) })
    isNew ||= !kept.has(filename) || script.cachedDataRejected
    scripts.set(filename, script)
    const require = (name) => this.require(name)
    require.resolve = (name, options) => Module._resolveFilename(name, this, false, options)
    require.resolve.paths = (name) => Module._resolveLookupPaths(name, this)
    require.main = process.mainModule
    require.extensions = Module._extensions
    require.cache = Module._cache
    const run = script.runInThisContext()
    return run.call(this.exports, this.exports, require, this, filename, path.dirname(filename))
  }

  const resolve = Module._resolveFilename
  Module._resolveFilename = function (name, parent, isMain, options) {
    if (options || path.isAbsolute(name) || !parent?.filename?.startsWith(npm))
      return resolve.call(this, name, parent, isMain, options)
    const key = `${path.dirname(parent.filename)}\0${name}`
    if (Object.hasOwn(places, key)) return places[key]
    const found = resolve.call(this, name, parent, isMain, options)
    if (found.startsWith(npm)) {
      places[key] = found
      isNew = true
    }
    return found
  }

  // Which of them are no ES modules is known, too: Node would look for a package.json in each folder above.
  const load = Module._extensions['.js']
  Module._extensions['.js'] = function (module, filename) {
    if (kept.has(filename)) module._compile(fs.readFileSync(filename, 'utf8'), filename)
    else load(module, filename)
  }

  process.on('exit', () => {
    try {
      if (isNew) write()
    } catch {
      // The next one begins anew.
    }
  })
}
