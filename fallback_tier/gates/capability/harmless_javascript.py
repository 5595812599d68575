"""JavaScript: harmless modules of node, names that need no import, and members of its values."""

from fallback_tier.gates.capability.harmless import Harmless, modules, words

#: Modules of node, of every version still in use.
_LIBRARY = words(
    """
    _http_agent _http_client _http_common _http_incoming _http_outgoing _http_server _linklist
    _stream_duplex _stream_passthrough _stream_readable _stream_transform _stream_wrap
    _stream_writable _tls_common _tls_wrap assert async_hooks buffer child_process cluster
    console constants crypto dgram diagnostics_channel dns domain events ffi freelist fs http
    http2 https inspector module net os path perf_hooks process punycode querystring quic
    readline repl sea smalloc sqlite stream string_decoder sys test timers tls trace_events tty
    url util v8 vm wasi worker_threads zlib
    """
)

_MODULES = """
assert async_hooks buffer console constants crypto diagnostics_channel events fs os path perf_hooks
punycode querystring readline stream string_decoder sys timers tty url util zlib
process: abort allowedNodeEnvironmentFlags arch argv argv0 availableMemory browser chdir config
process: constrainedMemory cpuUsage cwd default emit emitWarning env execPath exit exitCode
process: features get*id getgroups hrtime listenerCount memoryUsage nextTick off on once pid
process: platform ppid release removeListener removeAllListeners resourceUsage
process: setUncaughtExceptionCaptureCallback stderr stdin stdout title umask uptime version versions
process: addListener prependListener listeners maxTickDepth throwDeprecation noDeprecation domain
module: exports id filename loaded parent hot path require
v8: serialize deserialize getHeapStatistics getHeapSpaceStatistics
WebAssembly: validate CompileError LinkError RuntimeError
Reflect: defineProperty deleteProperty getOwnPropertyDescriptor has isExtensible ownKeys
Reflect: preventExtensions set setPrototypeOf get apply getPrototypeOf
require: main resolve cache
"""

#: Names of the language and of every environment that it runs in.
_ROOTS = words(
    """
    AbortController AbortSignal AggregateError ByteLengthQueuingStrategy CountQueuingStrategy
    CompressionStream DecompressionStream TextDecoderStream TextEncoderStream Array ArrayBuffer
    Atomics BigInt BigInt64Array BigUint64Array Blob Boolean Buffer CustomEvent DOMException
    DataView Date Error EvalError Event EventTarget File FinalizationRegistry Float32Array
    Float64Array FormData Function Headers Infinity Int16Array Int32Array Int8Array Intl
    Iterator JSON Map Math NaN Number Object Promise Proxy RangeError ReadableStream
    ReferenceError Reflect RegExp Set SharedArrayBuffer String Symbol SyntaxError TextDecoder
    TextEncoder TransformStream TypeError URIError URL URLSearchParams Uint16Array Uint32Array
    Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet WritableStream __dirname __filename
    arguments atob btoa clearImmediate clearInterval clearTimeout console crypto decodeURI
    decodeURIComponent define encodeURI encodeURIComponent escape exports global globalThis
    isFinite isNaN module parseFloat parseInt performance process queueMicrotask require
    setImmediate setInterval setTimeout structuredClone super this undefined unescape window
    Request Response WebAssembly import NodeJS
    """
)

#: Members of its values of which a call has no effect outside the process: those of the global prototypes,
#: of node's events, streams and buffers, and of its modules (``fs``, ``path``, ``crypto``, …), as
#: ``Object.getOwnPropertyNames`` lists them, without those that run or return code (``constructor``). Such
#: a name may also be another object's: ADR-0057 says what that misses.
_MEMBERS = words(
    """
    abort aborted abs access accessSync acos acosh add addAbortListener addEventListener
    addListener all allSettled alloc allocUnsafe allocUnsafeSlow anchor and any append
    appendFile appendFileSync apply arch asIndexedPairs asIntN asUintN asin asinh assert assign
    asyncDispose asyncIterator at atan atan2 atanh availableParallelism basename big bind blink
    bold brotliCompress brotliCompressSync brotliDecompress brotliDecompressSync bubbles buffer
    byteLength byteOffset call callbackify canParse cancelBubble cancelable
    captureRejectionSymbol captureRejections captureStackTrace catch cbrt ceil charAt charCodeAt
    checkPrime checkPrimeSync chmod chmodSync chown chownSync clear close closeSync closed clz32
    codePointAt compare compareExchange compose composed composedPath concat constants context
    copy copyBytesFrom copyFile copyFileSync copyWithin cork cos cosh count countReset cp cpSync
    cpus crc32 create createBrotliCompress createBrotliDecompress createCipheriv
    createDecipheriv createDeflate createDeflateRaw createDiffieHellman createDiffieHellmanGroup
    createECDH createGunzip createGzip createHash createHmac createInflate createInflateRaw
    createObjectURL createPrivateKey createPublicKey createReadStream createSecretKey createSign
    createTask createUnzip createVerify createWriteStream currentTarget debug debuglog decode
    deepEqual deepStrictEqual defaultMaxListeners defaultPrevented defineProperties
    defineProperty deflate deflateRaw deflateRawSync deflateSync delete deprecate description
    destroy destroyed diffieHellman digest dir dirname dirxml dispatchEvent dispose doesNotMatch
    doesNotReject doesNotThrow domainToASCII domainToUnicode dotAll drop emit encode encodeInto
    encoding end endianness endsWith entries equal equals error errorMonitor errored escape
    eventNames eventPhase every exchange exec exists existsSync exp expm1 extname fail fatal
    fchmod fchmodSync fchown fchownSync fdatasync fdatasyncSync fileURLToPath fill filter
    finally find findIndex findLast findLastIndex fixed flags flat flatMap floor fontcolor
    fontsize for forEach format formatWithOptions freemem freeze from fromCharCode fromCodePoint
    fromEntries fromWeb fround fstat fstatSync fsync fsyncSync ftruncate ftruncateSync futimes
    futimesSync generateKey generateKeyPair generateKeyPairSync generateKeySync generatePrime
    generatePrimeSync get getAll getCanonicalLocales getCipherInfo getCiphers getCurves getDate
    getDay getDiffieHellman getEventListeners getFips getFullYear getHashes getHours
    getMaxListeners getMilliseconds getMinutes getMonth getOwnPropertyDescriptor
    getOwnPropertyDescriptors getOwnPropertyNames getOwnPropertySymbols getPriority
    getPrototypeOf getRandomValues getSeconds getSetCookie getSystemErrorMap getSystemErrorName
    getTime getTimezoneOffset getYear global group groupCollapsed groupEnd gunzip gunzipSync
    gzip gzipSync has hasIndices hasInstance hasOwn hasOwnProperty hash hkdf hkdfSync homedir
    host hostname href hypot ifError ignoreBOM ignoreCase imul includes indexOf inflate
    inflateRaw inflateRawSync inflateSync info inherits init initEvent input inspect is
    isAbsolute isArray isBoolean isBuffer isConcatSpreadable isDate isDeepStrictEqual isEncoding
    isError isExtensible isFile isFinite isFrozen isFunction isInteger isLockFree isNaN isNull
    isNullOrUndefined isNumber isObject isPaused isPrimitive isPrototypeOf isRegExp
    isSafeInteger isSealed isString isSymbol isTrusted isUndefined isView isWellFormed italics
    iterator join kMaxEventTargetListeners kMaxEventTargetListenersWarned keyFor keys
    lastIndexOf lastMatch lastParen lchmod lchown lchownSync leftContext link linkSync
    listenerCount listeners load loadavg localeCompare log log10 log1p log2 lstat lstatSync
    lutimes lutimesSync machine map match matchAll matchesGlob max maxByteLength message min
    mkdir mkdirSync mkdtemp mkdtempSync multiline networkInterfaces next normalize notDeepEqual
    notDeepStrictEqual notEqual notStrictEqual notify now of off offset ok on onabort once open
    openAsBlob openSync opendir opendirSync or origin padEnd padStart parent parse parseArgs
    parseEnv parseFloat parseInt password pathToFileURL pathname pause pbkdf2 pbkdf2Sync pipe
    platform poolSize pop port pow prepareStackTrace prependListener prependOnceListener
    preventDefault preventExtensions privateDecrypt privateEncrypt profile profileEnd promisify
    propertyIsEnumerable protocol publicDecrypt publicEncrypt push race random randomBytes
    randomFill randomFillSync randomInt randomUUID raw rawListeners read readFile readFileSync
    readSync readable readableAborted readableBuffer readableDidRead readableEncoding
    readableEnded readableFlowing readableHighWaterMark readableLength readableObjectMode
    readdir readdirSync readlink readlinkSync readv readvSync realpath realpathSync reason
    reduce reduceRight reject rejects relative release removeAllListeners removeEventListener
    removeListener rename renameSync repeat replace replaceAll resizable resize resolve
    resolveObject resume return returnValue reverse revokeObjectURL rightContext rm rmSync rmdir
    rmdirSync round scrypt scryptSync seal search searchParams secureHeapUsed set setDate
    setDefaultEncoding setEncoding setEngine setFips setFullYear setHours setMaxListeners
    setMilliseconds setMinutes setMonth setPrototypeOf setSeconds setTime setYear shift sign
    signal sin sinh size slice small some sort source species splice split sqrt srcElement
    stackTraceLimit startsWith stat statSync statfs statfsSync sticky stopImmediatePropagation
    stopPropagation store strict strictEqual strike stringify stripVTControlCharacters styleText
    sub subarray substr substring sup supportedValuesOf swap16 swap32 swap64 symlink symlinkSync
    table take tan tanh target test then throw throwIfAborted throws time timeEnd timeLog
    timeStamp timeout timingSafeEqual tmpdir toArray toDateString toExponential toFixed
    toGMTString toISOString toJSON toLocaleDateString toLocaleLowerCase toLocaleString
    toLocaleTimeString toLocaleUpperCase toLowerCase toNamespacedPath toPrecision toPrimitive
    toReversed toSorted toSpliced toString toStringTag toTimeString toUSVString toUTCString
    toUpperCase toWeb toWellFormed totalmem trace transferableAbortController
    transferableAbortSignal trim trimEnd trimLeft trimRight trimStart trunc truncate
    truncateSync type uncork unescape unescapeBuffer unicode unicodeSets unlink unlinkSync
    unpipe unscopables unshift unwatchFile unzip unzipSync update uptime urlToHttpOptions
    userInfo username usingDomains utimes utimesSync valueOf values verify version wait
    waitAsync warn watch watchFile with wrap writable writableAborted writableBuffer
    writableCorked writableEnded writableFinished writableHighWaterMark writableLength
    writableNeedDrain writableObjectMode write writeFile writeFileSync writeSync writev
    writevSync xor
    """
)

JAVASCRIPT = Harmless(
    modules=modules(_MODULES),
    library=_LIBRARY,
    roots=_ROOTS,
    members=_MEMBERS,
)
