// Called before npm is loaded, whose path is process.argv[1]: npm's modules are compiled, and looked for, once in a
// run of the tests. What npm runs, and in which order, stays what it is.
//
// What is kept lies in four files a subcommand, in a folder of the run: nothing of it can be old. A run that loads
// modules which are in none says so; the next one compiles all of them as one script, and keeps what V8 made of what
// was run. Modules with letters beyond Latin-1 are a script of their own: V8 takes two bytes for each of its letters.
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
  const text = path.join(folder, verb)
  const found = new Map() // file of a module → its text, of those that are not in the script
  // places: folder, NUL and what is required there → file of the module
  let kept = { narrow: [], wide: [], places: {}, bodies: { narrow: '', wide: '' } }
  let scripts = {} // all of these modules together, by width
  const made = new Map() // file of a module → its function
  let isLarger = false
  let isNew = false

  // The first line is what else is known; the rest is the script of Latin-1.
  function read() {
    const all = fs.readFileSync(text, 'latin1')
    const end = all.indexOf('\n')
    const known = JSON.parse(all.slice(0, end))
    known.bodies = { narrow: all.slice(end + 1), wide: fs.readFileSync(wideOf(known), 'utf16le') }
    for (const [width, body] of Object.entries(known.bodies)) {
      const data = dataOf(known, width)
      const cachedData = fs.existsSync(data) ? fs.readFileSync(data) : undefined
      const script = new vm.Script(`[${body}]`, { filename: `${text}.${width}`, cachedData })
      if (!cachedData || script.cachedDataRejected) isNew = true
      const functions = script.runInThisContext()
      known[width].forEach((file, number) => made.set(file, functions[number]))
      scripts[width] = script
    }
    kept = known
  }

  const wideOf = (known) => `${text}.${known.id}.wide`
  // V8 itself knows a script by its length alone.
  const dataOf = (known, width) => `${text}.${known.id}.${width}.data`

  function replace(file, content, encoding) {
    const temporary = `${file}.part-${process.pid}`
    fs.writeFileSync(temporary, content, encoding)
    fs.renameSync(temporary, file) // others are reading it
  }

  function write() {
    if (!isLarger) {
      for (const width of Object.keys(scripts)) replace(dataOf(kept, width), scripts[width].createCachedData())
      return
    }
    const id = `${process.pid}-${process.hrtime.bigint()}`
    const next = { id, narrow: [...kept.narrow], wide: [...kept.wide], places: kept.places }
    const bodies = { ...kept.bodies }
    for (const [file, content] of found) {
      const width = /[^\0-\xff]/.test(content) ? 'wide' : 'narrow'
      next[width].push(file)
      bodies[width] += `${Module.wrap(content.replace(/^#!.*/, '')).replace(/;$/, '')},\n`
    }
    replace(wideOf(next), bodies.wide, 'utf16le')
    replace(text, `${JSON.stringify(next)}\n${bodies.narrow}`, 'latin1')
  }

  try {
    read()
  } catch {
    scripts = {} // the first of its subcommand
    made.clear()
  }

  function run(module, filename) {
    const folder = path.dirname(filename)
    const require = (name) => {
      const file = kept.places[`${folder}\0${name}`]
      if (file === undefined) return module.require(name)
      const cached = Module._cache[file]
      if (cached) return cached.exports
      if (!made.has(file)) return module.require(name)
      const required = new Module(file, module)
      required.filename = file
      required.paths = Module._nodeModulePaths(path.dirname(file))
      Module._cache[file] = required
      let isRun = false
      try {
        run(required, file)
        isRun = true
      } finally {
        if (!isRun) delete Module._cache[file]
      }
      required.loaded = true
      return required.exports
    }
    require.resolve = (name, options) => Module._resolveFilename(name, module, false, options)
    require.resolve.paths = (name) => Module._resolveLookupPaths(name, module)
    require.main = process.mainModule
    require.extensions = Module._extensions
    require.cache = Module._cache
    made.get(filename).call(module.exports, module.exports, require, module, filename, folder)
  }

  const resolve = Module._resolveFilename
  Module._resolveFilename = function (name, parent, isMain, options) {
    if (options || path.isAbsolute(name) || !parent?.filename?.startsWith(npm))
      return resolve.call(this, name, parent, isMain, options)
    const key = `${path.dirname(parent.filename)}\0${name}`
    if (Object.hasOwn(kept.places, key)) return kept.places[key]
    const file = resolve.call(this, name, parent, isMain, options)
    if (file.startsWith(npm)) {
      kept.places[key] = file
      isLarger = true
    }
    return file
  }

  const load = Module._extensions['.js']
  Module._extensions['.js'] = function (module, filename) {
    if (made.has(filename)) run(module, filename)
    else load(module, filename)
  }

  const compile = Module.prototype._compile
  Module.prototype._compile = function (content, filename, ...more) {
    // V8 forgets, in what it keeps, how `import()` finds its modules.
    if (filename.startsWith(npm) && more[0] !== 'module' && !/\bimport\s*\(/.test(content)) {
      found.set(filename, content)
      isLarger = true
    }
    return compile.call(this, content, filename, ...more)
  }

  process.on('exit', () => {
    try {
      if (isLarger || isNew) write()
    } catch {
      // The next one begins anew.
    }
  })
}
