"""JavaScript: harmless modules of node, names that need no import, and members of its values."""

from fallback_tier.gates.capability import harmless_names
from fallback_tier.gates.capability.harmless import Harmless, modules, words

#: Modules of node, of every version that is still met.
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

#: Names of the language and of every place that it runs in.
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

JAVASCRIPT = Harmless(
    modules=modules(_MODULES),
    library=_LIBRARY,
    roots=_ROOTS,
    members=harmless_names.JAVASCRIPT,
)
