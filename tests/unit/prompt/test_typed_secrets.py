"""Secrets that only their place gives away: no issuer's prefix, no entropy, in whatever language.

``FORMS`` was written before the code, ``HELD_OUT`` after it, from other forms than it was made for.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_tier.prompt import named_values
from fallback_tier.prompt.redact import REDACTED, redact_secrets
from fallback_tier.syntax import first_error_line

#: A dictionary word, what people add to one, a sentence, and what a generator makes.
VALUES = ("swordfish", "hunter2", "correct horse battery", "Tr0ub4dor&3", "kX9vQ2mZ7pL4wR8t")
#: Where a space ends the value, or markup reads ``&``.
WORDS = ("swordfish", "hunter2", "Tr0ub4dor_3")

PYTHON = [
    'API_TOKEN: str = "§"',
    'API_TOKEN: Final = "§"',
    "API_TOKEN: Final[str] = '§'",
    'password: str | None = "§"',
    'client_secret: typing.Optional[str] = "§"',
    'def connect(host, password: str = "§", port=1):\n    pass',
    'def connect(\n    *,\n    api_key: Annotated[str, Doc("What it is.")] = "§",\n) -> None: ...',
    '@dataclass\nclass Settings:\n    db_password: str = "§"\n    port: int = 1',
    'class Settings(BaseSettings):\n    api_key: SecretStr = SecretStr("§")',
    'class Settings(BaseSettings):\n    api_key: str = Field(default="§", description="Of the service")',
    'api_key: str = Field("§", min_length=3)',
    'password: str = field(default_factory=lambda: "§")',
    'PASSWORDS = ["§"]',
    'PASSWORDS = {"alice": "§"}',
    'API_KEYS: dict[str, str] = {\n    "one": "§",  # Bob\'s\n    "two": load("two"),\n}',
    'PASSWORD = """§"""',
    "PASSWORD = '''\n§\n'''",
    'PASSWORD = (\n    "§"\n)',
    'PASSWORD = "§" if DEBUG else load()',
    'password = os.environ.get("API_KEY", "§")',
    'password = os.getenv("DB_PASSWORD", default="§")',
    'x = os.environ.get("API_KEY", "§")',
    'x = os.environ.get("API_KEY") or "§"',
    'os.environ["API_KEY"] = "§"',
    'os.environ.setdefault("API_KEY", "§")',
    'app.config["SECRET_KEY"] = "§"',
    'app.config.update(SECRET_KEY="§", DEBUG=True)',
    'requests.get(url, auth=("user", "§"))',
    'requests.get(url, auth=HTTPBasicAuth("user", "§"))',
    'connect(host="h", user="u", password="§")',
    'if password == "§":\n    pass',
    'if request.form["password"] != "§":\n    pass',
    'user.set_password("§")',
    'PASSWORD = b"§"',
    'PASSWORD = "§".encode("utf-8")',
    'self.password = "§"',
    'config = {"user": "u", "password": "§"}',
    'config = dict(user="u", password="§")',
    'if (api_token := "§"):\n    pass',
    'user, password = "root", "§"',
]
JAVASCRIPT = [
    "const apiKey = '§';",
    "const apiKey = `§`;",
    "module.exports = { apiKey: '§' };",
    "const password = process.env.PASSWORD || '§';",
    "const password = process.env.PASSWORD ?? '§';",
    "const x = process.env.API_KEY || '§';",
    "const { password = '§' } = options;",
    "function connect(user, password = '§') {}",
    "class A { password = '§'; }",
    "class A { static #apiKey = '§'; }",
    "app.use(session({ secret: '§', resave: false }));",
    "const passwords = ['§'];",
    "const passwords = new Map([['alice', '§']]);",
    "if (password === '§') { go(); }",
    "process.env.API_KEY = '§';",
    "localStorage.setItem('authToken', '§');",
    "axios.get(url, { auth: { username: 'u', password: '§' } });",
    "const secret = Buffer.from('§', 'utf8');",
    "headers['X-Api-Key'] = '§';",
    "const password =\n  '§';",
    "const password = isTest ? '§' : load();",
]
TYPESCRIPT = [
    "const apiKey: string = '§';",
    "const apiKey: string | undefined = '§';",
    "const apiKey = '§' as const;",
    "class A { private readonly apiKey: string = '§'; }",
    "class A { constructor(private password: string = '§') {} }",
    "const apiKeys: Record<string, string> = { one: '§' };",
    "export const environment = { apiKey: <string>'§' };",
]
OTHERS = [
    # Go
    'const apiKey = "§"',
    'var apiKey string = "§"',
    'apiKey := "§"',
    "password := `§`",
    'cfg := Config{Host: "h", APIKey: "§"}',
    'const (\n\tHost   = "h"\n\tAPIKey = "§"\n)',
    'var jwtSecret = []byte("§")',
    'os.Setenv("API_KEY", "§")',
    'req.SetBasicAuth("user", "§")',
    # Kotlin, Java, C#, Scala
    'val apiKey: String = "§"',
    'const val API_KEY = "§"',
    'val apiKey = System.getenv("API_KEY") ?: "§"',
    'private static final String API_KEY = "§";',
    'String[] passwords = {"§"};',
    'char[] password = "§".toCharArray();',
    'props.put("password", "§");',
    'builder.password("§").build();',
    'public string ApiKey { get; set; } = "§";',
    'private const string Password = @"§";',
    'var c = new NetworkCredential("user", "§");',
    # Rust, Swift
    'const API_KEY: &str = "§";',
    'static API_KEY: &\'static str = "§";',
    'let password = String::from("§");',
    'let password = r#"§"#;',
    'let key = env::var("API_KEY").unwrap_or("§".into());',
    'let apiKey: String = "§"',
    'static let apiKey = "§"',
    # PHP, Ruby
    "define('DB_PASSWORD', '§');",
    "$password = '§';",
    "'password' => '§',",
    "$conf['db']['password'] = '§';",
    "$password = env('DB_PASSWORD', '§');",
    "password: '§'",
    ":password => '§'",
    "API_KEY = '§'.freeze",
    "ENV.fetch('API_KEY', '§')",
    "ENV['API_KEY'] ||= '§'",
    # C, C++
    'const char *password = "§";',
    'char password[] = "§";',
    '#define API_KEY "§"',
    'std::string api_key{"§"};',
    # Shells, SQL
    "export API_KEY='§'",
    '$env:API_KEY = "§"',
    '$Password = ConvertTo-SecureString "§" -AsPlainText -Force',
    "CREATE USER app IDENTIFIED BY '§';",
    "ALTER ROLE app WITH PASSWORD '§';",
    # Data
    'password: "§"',
    'password = "§"',
    '{"password": "§"}',
    '{"passwords": ["§"]}',
    '{"secrets": {"first": "§"}}',
    'variable "db_password" {\n  default = "§"\n}',
]
#: The value has no quotes around it.
BARE = [
    "<password>§</password>",
    '<password type="plain">§</password>',
    "<db:password>§</db:password>",
    "<password><![CDATA[§]]></password>",
    '<entry key="password">§</entry>',
    '<string name="api_key">§</string>',
    '<add key="ApiKey" value="§" />',
    '<property name="password" value="§"/>',
    '<user username="u" password="§" roles="r"/>',
    '<input type="hidden" name="api_key" value="§">',
    "<key>ApiKey</key>\n<string>§</string>",
    "DB_PASSWORD=§",
    "export DB_PASSWORD=§",
    "ENV DB_PASSWORD §",
    "ENV DB_PASSWORD=§",
    "password: §",
    "  - password: §",
    "spring.datasource.password=§",
    "password = §",
    "passwords:\n  - §\n  - x",
    "secrets:\n  first: §\n",
    "- name: DB_PASSWORD\n  value: §",
    "https://§:x-oauth-basic@github.example/x.git",
    "https://§:@github.example/x.git",
    "https://x-access-token:§@github.example/x.git",
    "Server=db;User Id=sa;Password=§;Encrypt=true",
    "https://h.example/?user=a&password=§&x=y",
    "tool --password=§ run",
    "requirepass §",
]

#: Where what stands next to the secret goes, too: a user's name, a command.
NEXT_TO_IT = ('"user", ', '"root"', "'alice'", "ConvertTo", '"one", ', "- other", ":x-oauth", "§:@")

FORMS = [*PYTHON, *JAVASCRIPT, *TYPESCRIPT, *OTHERS]

#: Thought of when ``FORMS`` passed: 71 of 579 of these came through at the first run.
HELD_OUT = [
    'class Config:\n    SECRET_KEY = "§"\n    DEBUG = False',
    'SECRET_KEY = os.environ["KEY"] if PROD else "§"',
    'parser.add_argument("--api-key", default="§")',
    'API_KEY: Final[str] | None = "§"',
    'settings.configure(SECRET_KEY="§")',
    'DATABASES = {"default": {"ENGINE": "x", "PASSWORD": "§"}}',
    'password = config("DB_PASSWORD", default="§", cast=str)',
    'password = env.str("DB_PASSWORD", "§")',
    'monkeypatch.setenv("API_KEY", "§")',
    "conn = psycopg2.connect(\"dbname=x user=u password='§'\")",
    'smtp.login("user", "§")',
    'token = jwt.encode(payload, "§", algorithm="HS256")',
    'jwt.decode(value, key="x", secret="§")',
    'fernet_secret = bytes("§", "ascii")',
    'match password:\n    case "§":\n        pass',
    'if password in ("§", "x"):\n    pass',
    'if "§" == password:\n    pass',
    'return hmac.compare_digest(password, "§")',
    'PASSWORD = str("§")',
    'PASSWORD = r"§"',
    'PASSWORD = "§" + SUFFIX',
    'PASSWORD = PREFIX + "§"',
    'PASSWORD, USER = "§", "root"',
    'api_keys = {"one", "§"}',
    'credentials = ("root", "§")',
    'credentials = [("root", "§")]',
    'def get_password():\n    return "§"',
    'def api_key(self) -> str:\n    """The key."""\n    return "§"',
    'get_secret = lambda: "§"',
    'class Login(NamedTuple):\n    user: str\n    password: str = "§"',
    'secret: str = pydantic.Field(\n    default="§",\n    repr=False,\n)',
    'password: Annotated[str, Field(default="§")]',
    'client_secret = os.environ.get(\n    "CLIENT_SECRET",\n    "§",\n)',
    'os.environ.update({"API_KEY": "§"})',
    'os.environ |= {"API_KEY": "§"}',
    'os.putenv("API_KEY", "§")',
    'keyring.set_password("system", "user", "§")',
    'PASSWORD = textwrap.dedent("""\n    §\n""")',
    'export const API_KEY = "§";',
    "let password; password = '§';",
    "var config = { db: { user: 'u', pass: '§' } };",
    "const config = {\n  'db-password': '§',\n};",
    "const secret = process.env['JWT_SECRET'] || '§';",
    "jwt.sign(payload, '§' /* secret */);\nconst jwtSecret = '§';",
    "export default { apiKey: import.meta.env.KEY ?? '§' };",
    "const getPassword = () => '§';",
    "function getApiKey() { return '§'; }",
    "const getApiKey = () => {\n  return '§';\n};",
    "this.#password = '§';",
    "Object.assign(config, { apiKey: '§' });",
    "const apiKey = <const>'§';",
    "enum Secret { Password = '§' }",
    "@Input() password: string = '§';",
    "private password!: string; constructor() { this.password = '§'; }",
    "const api = new Client({ credentials: { accessKeyId: 'x', secretAccessKey: '§' } });",
    "cy.get('#password').type('§');",
    "await page.fill('#password', '§');",
    "const password = String('§');",
    "password ||= '§';",
    "password ??= '§';",
    "switch (password) { case '§': break; }",
    "fetch(url, { headers: { 'X-Api-Key': '§' } });",
    "headers.set('X-Auth-Token', '§');",
    "xhr.setRequestHeader('X-Api-Key', '§');",
    "mysql.createConnection({ host: 'h', password: '§' });",
    '<Login password="§" />',
    "<Login password={'§'} />",
    'const (\n\tapiKey string = "§"\n)',
    'var password = flag.String("password", "§", "the password")',
    'return &Config{Password: "§"}',
    'passwords := map[string]string{"alice": "§"}',
    'passwords := []string{"§"}',
    'if password != "§" {\n\treturn\n}',
    'viper.SetDefault("db.password", "§")',
    'req.Header.Set("X-Api-Key", "§")',
    'func apiKey() string { return "§" }',
    'user, password := "root", "§"',
    'cfg.Password = "§"',
    '@Value("${api.key:x}") String k; String apiKey = "§";',
    'private String password = "§";',
    'if (password.equals("§")) { }',
    'if ("§".equals(password)) { }',
    'System.setProperty("db.password", "§");',
    'Map.of("password", "§");',
    'new UsernamePasswordCredentials("user", "§");',
    'ds.setPassword("§");',
    'private val apiKey by lazy { "§" }',
    'data class Login(val user: String, val password: String = "§")',
    'fun password() = "§"',
    'val password = if (debug) "§" else load()',
    'lazy val password: String = "§"',
    'password = """§"""',
    'signingConfigs { release { storePassword "§" } }',
    "keyPassword = '§'",
    'string password = "§";',
    'public string Password => "§";',
    'var password = Environment.GetEnvironmentVariable("PW") ?? "§";',
    'new SqlCredential { UserId = "u", Password = "§" };',
    'var s = new Settings(user: "u", password: "§");',
    'let api_key = "§".to_string();',
    'const API_KEY: Option<&\'static str> = Some("§");',
    'let password = option_env!("PW").unwrap_or("§");',
    'Config { password: "§".into(), port: 1 }',
    'let client = Client::new().basic_auth("user", Some("§"));',
    'fn password() -> &\'static str { "§" }',
    'let api_key = std::env::var("API_KEY").unwrap_or_else(|_| "§".to_string());',
    'private let apiKey = "§"',
    'var apiKey: String { "§" }',
    'var apiKey: String { return "§" }',
    'let key = ProcessInfo.processInfo.environment["API_KEY"] ?? "§"',
    'login(user: "u", password: "§")',
    'NSString *const kApiKey = @"§";',
    "final String apiKey = '§';",
    "const DB_PASSWORD = '§';",
    "private string $apiKey = '§';",
    "$this->password = '§';",
    "putenv('API_KEY=§');",
    "$password = getenv('DB_PASSWORD') ?: '§';",
    "$config['password'] = '§';",
    "@password = '§'",
    "password = ENV.fetch('PASSWORD') { '§' }",
    "Rails.application.config.secret_key_base = '§'",
    "my $password = '§';",
    "local password = '§'",
    'config :app, secret_key_base: "§"',
    '@api_key "§"',
    '{password, "§"}',
    '(def api-key "§")',
    '{:password "§"}',
    'password <- "§"',
    'password :: String\npassword = "§"',
    'let password = "§" in f password',
    'static constexpr std::string_view kApiKey = "§";',
    'std::string password("§");',
    'strcmp(password, "§")',
    'API_KEY="§" ./run',
    'API_KEY=${API_KEY:-"§"}',
    "set -gx API_KEY '§'",
    'declare -x API_KEY="§"',
    'if [ "$PASSWORD" = "§" ]; then',
    'resource "x" "y" {\n  username = "u"\n  password = "§"\n}',
    'locals {\n  api_key = "§"\n}',
    "param adminPassword string = '§'",
    'Environment="API_KEY=§"',
    'args: ["--password", "§"]',
    'proxy_set_header X-Api-Key "§";',
    "mysql --password='§' db",
    "curl -H 'X-Api-Key: §' https://h.example",
    'curl -d \'{"password": "§"}\' https://h.example',
    "GRANT ALL ON a.* TO 'u'@'h' IDENTIFIED BY '§';",
    "CREATE ROLE app LOGIN PASSWORD '§';",
    "UPDATE users SET password = '§' WHERE id = 1;",
    'api_key: "§"  # of the service',
    '"password" : "§",',
    "password='§'",
    "{'user': 'u', 'password': '§'}",
    'connecting with password="§" to db',
    'KeyError: {"api_key": "§"}',
    '+    "password": "§",',
    'E       AssertionError: assert Settings(password="§") == None',
    "Config(host='h', api_key='§')",
    'users:\n  - name: u\n    password: "§"',
    '[db]\npassword = "§"',
    '<user name="u" password="§"/>',
    '<connectionStrings><add connectionString="Server=h;Password=§;"/></connectionStrings>',
]

HELD_OUT_BARE = [
    "<Password>§</Password>",
    '<setting name="ApiKey"><value>§</value></setting>',
    "<property><name>db.password</name><value>§</value></property>",
    "<apiKey>\n  §\n</apiKey>",
    "jdbc:mysql://h/db?user=u&password=§",
    "API_KEY=§ ./run.sh",
    "export API_KEY=§ OTHER=1",
    "ARG NPM_TOKEN=§",
    "      DB_PASSWORD: §",
    "      - DB_PASSWORD=§",
    "db.password = §",
    "db.password: §",
    "password = §  # of the database",
    "[client]\nuser = root\npassword = §",
    "credentials:\n  user: u\n  password: §",
    "api_keys:\n- §\n- other",
    "secret: |\n  §\n",
    "stringData:\n  password: §",
    "- name: API_KEY\n  value: §",
    "- name: API_KEY\n  value: '§'",
    "PGPASSWORD=§ psql",
    "java -Ddb.password=§ -jar x.jar",
    "kubectl create secret generic x --from-literal=password=§",
    "helm install x --set auth.password=§",
    "mongodb://u:§@h/db",
    "redis://:§@h:6379",
    "amqp://u:§@h",
    "masterauth §",
    "Driver={x};Server=h;Uid=u;Pwd=§;",
    "host=h user=u password=§ dbname=d",
    "AccountName=x;password=§",
    'ALTER USER x IDENTIFIED BY "§";',
    "X-Api-Key: §",
    "Authorization: Bearer §",
    "_authToken=§",
    "//registry.example/:_password=§",
    "machine h login u password §",
    "sshpass -p § ssh h",
]

#: A third set, after the second: 30 of 268 came through at the first run.
LATER = [
    'SECRETS: Final[Mapping[str, str]] = MappingProxyType({"stripe": "§"})',
    'TOKENS: list[str] = [\n    "§",\n]',
    'self._api_key: str = "§"',
    'cls.password: ClassVar[str] = "§"',
    'api_key: "str" = "§"',
    'password: Optional[SecretStr] = Field(None)\npassword = SecretStr("§")',
    'def f(*, token: str | None = "§"): ...',
    'async def f(api_key="§"): ...',
    'x = lambda password="§": password',
    'client = Client(api_key = "§",\n                timeout=3)',
    'Client(\n    "host",\n    api_key=\n    "§",\n)',
    'AUTH = ("u", "§")',
    'auth=aiohttp.BasicAuth("u", "§")',
    'auth = requests.auth.HTTPDigestAuth("u", "§")',
    'headers = {"Authorization": "Bearer §"}',
    'headers = {"Authorization": "Token §"}',
    "headers: { authorization: 'Bearer §' }",
    'password = getpass() or "§"',
    'password = args.password if args.password else "§"',
    'password = next(iter(["§"]))',
    'DB = dict(PASSWORD="§")',
    'db_url = "postgres://u:§@h/db"',
    'DATABASE_URL = f"postgres://u:§@{host}/db"',
    'engine = create_engine("mysql+pymysql://u:§@h/db")',
    'PASSWORD = \\\n    "§"',
    'PASSWORD = ("§"\n            "x")',
    "PASSWORD = u'§'",
    'PASSWORD: str\nPASSWORD = "§"',
    "const apiKey: Readonly<string> = '§';",
    "const apiKey = '§' satisfies string;",
    "const apiKey = ('§' as string);",
    "const apiKey = `§` + '';",
    "let apiKey: string | null = null; apiKey = '§';",
    "export const config: Config = { apiKey: '§' } as const;",
    "const creds: Credentials = {\n  username: 'u',\n  password: '§',\n};",
    "class A { constructor(private readonly apiKey = '§') {} }",
    "const apiKey = process.env.API_KEY ? process.env.API_KEY : '§';",
    "const apiKey = config?.apiKey ?? '§';",
    'apiKey: process.env.API_KEY || "§",',
    "password: env('DB_PASSWORD', '§'),",
    "const [apiKey, setApiKey] = useState('§');",
    "const { apiKey = '§', host } = process.env;",
    "export function login(user, password = '§') {}",
    "new Vonage({ apiKey: 'x', apiSecret: '§' })",
    'firebase.initializeApp({ apiKey: "§", projectId: "x" });',
    'var x = { "client_secret" : "§" };',
    'x.token = "§"',
    "const secret = new TextEncoder().encode('§');",
    'type C struct{}\nvar c = C{Password: "§"}',
    'var (\n\tdbPassword = "§"\n)',
    'password, user := "§", "root"',
    'token := os.Getenv("TOKEN")\nif token == "" {\n\ttoken = "§"\n}',
    "const apiKey string = `§`",
    "secret := []byte(`§`)",
    'private val apiKey: String? = "§"',
    'val secrets = mapOf("stripe" to "§")',
    'val passwords = listOf("§")',
    'var password by mutableStateOf("§")',
    'companion object { const val API_KEY = "§" }',
    'buildConfigField("String", "API_KEY", "\\"§\\"")',
    'public static String password() { return "§"; }',
    'private final char[] secret = new String("§").toCharArray();',
    'String password = Optional.ofNullable(env).orElse("§");',
    '@Value("${db.password:§}") private String p;',
    'properties.setProperty("password", "§");',
    'String apiKey = "" + "§";',
    'byte[] secretKey = "§".getBytes(StandardCharsets.UTF_8);',
    'static let shared = Client(apiKey: "§")',
    'let apiKey = Bundle.main.object(forInfoDictionaryKey: "K") as? String ?? "§"',
    '@AppStorage("token") var apiToken = "§"',
    'lazy var apiKey: String = { "§" }()',
    'pub const DB_PASSWORD: &str = "§";',
    'pub static JWT_SECRET: &[u8] = b"§";',
    'let secret: &str = r##"§"##;',
    'let password = SecretString::new("§".to_owned());',
    'let password = Some("§");',
    'std::env::set_var("API_KEY", "§");',
    'struct S { password: &\'static str }\nconst S0: S = S { password: "§" };',
    "defined('X') or define('API_KEY', '§');",
    'define("API_SECRET","§");',
    'const API_KEY = "§";',
    "return ['password' => '§'];",
    "$_ENV['API_KEY'] = '§';",
    "'password' => env('DB_PASSWORD') ?: '§',",
    "$pdo = new PDO($dsn, 'root', '§');",
    "PASSWORD = %q(§)",
    "PASSWORDS = %w[§ other]",
    "ENV['API_KEY'] = '§'",
    "attr_accessor :x\n@api_key ||= '§'",
    "let!(:password) { '§' }",
    "create(:user, password: '§')",
    "http_basic_authenticate_with name: 'u', password: '§'",
    'export API_TOKEN="§"',
    "API_TOKEN='§'",
    'readonly PASSWORD="§"',
    'local password="§"',
    "PASSWORD=${PASSWORD:=§}",
    '--password "§"',
    'aws configure set aws_secret_access_key "§"',
    '  API_KEY: "§"',
    "env:\n  API_KEY: '§'",
    "password = '§'",
    'client_secret="§"',
    "<Password>\n  <![CDATA[§]]>\n</Password>",
    '<bean><property name="password"><value>§</value></property></bean>',
    "<server password='§'>",
    '<secret id="x">§</secret>',
    'data-api-key="§"',
    '<meta name="api-key" content="§">',
    '<input type="password" value="§">',
    '{"name": "API_KEY", "value": "§"}',
    '{"value": "§", "name": "API_KEY"}',
    '{"key": "password", "value": "§"}',
    'password: !vault "§"',
    'password: &pw "§"',
    "password: >-\n  §\n",
    "dsn: 'mysql:host=h;password=§'",
    "SET PASSWORD FOR 'u' = '§';",
    "SET PASSWORD = PASSWORD('§');",
    "-- password: '§'",
    '/* apiKey = "§" */',
    '# password is "§"',
    "// TODO remove hardcoded password '§'",
    "The default password is `§`.",
    "print('password:', '§')",
    "assert client.password == '§'",
    "expect(config.apiKey).toBe('§')",
    "expect(config.apiKey).to.equal('§')",
    "self.assertEqual(config.password, '§')",
    "self.assertEqual('§', config.password)",
]

HASHES = [
    "$2b$12$" + "R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW",
    "$2y$10$" + "abcdefghijklmnopqrstuuW1r9uV8xQ0jK7lM3nO5pQ7rS9tU1vW3",
    "$argon2id$v=19$m=65536,t=3,p=4$" + "c29tZXNhbHQ$RdescudvJCsgt3ub+b4dWRWJTmaaJObG",
    "$argon2i$v=19$m=4096,t=3,p=1$" + "c29tZXNhbHQ$iWh06vD8Fy27wf9npn6FXWiCX4K6pW6Ue1Bnzz07Z8A",
    "$scrypt$ln=16,r=8,p=1$" + "aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlm4CbdRSCdEBsjjJxD+iCs5E",
    "$7$C6..../...." + "SodiumChloride$kBGj9fHznVYFQMEn/qDCfrDevf9YDtcDdKvEqHJLV8D",
    "$6$rounds=5000$" + "usesomesillystri$D4IrlXatmP7rx3P3InaxBeoomnAihCKRVQAr/36eYXXXX",
    "$6$" + "qFXdEoc2Gpi3D2Ve$Jm0cQVfDqUmPjCnQeuZxNqCkFpbDz5qNYbRLBmJwG6D0f/",
    "$5$" + "MnfsQ4iN$ZMTppKN16y/tIsUYs/obHlhdP.Os80yXhTurpBMUbA5",
    "$1$" + "etNnh7FA$OlM7eljE/B7F1J4XYNnk81",
    "$apr1$" + "lZL6V/ci$eIMz/iKDkbtys/uU7LEK00",
    "$y$j9T$" + "F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o.9agCG9G317fhZg9SqC.5i5rd.RhAtQ7",
    "$P$B" + "55D6LjfHDkINU5wF.v2BuuzO0/XPk/",
    "pbkdf2_sha256$600000$" + "saltsaltsalt12$bG9yZW0gaXBzdW0gZG9sb3Igc2l0IGFtZXQgY28=",
    "$pbkdf2-sha512$25000$" + "c29tZXNhbHRzYWx0$" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzAaB3dE5fG7h",
    "pbkdf2:sha256:600000$" + "Xq3mB7Zk$" + "0123456789abcdef" * 4,
    "scrypt:32768:8:1$" + "Xq3mB7ZkSaltSalt$" + "0123456789abcdef" * 8,
    "{SSHA}" + "DkMTwBl+a/3DfG1Z6VbPLdLhF1bXb0mS",
    "{SHA}" + "W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
    "SCRAM-SHA-256$4096:c2FsdHNhbHQ=$MTIzNDU2Nzg5MDEyMzQ1Njc4OTA=:YWJjZGVmZ2hpamtsbW5vcHFyc3Q=",
]

#: Code that must stay readable: it says where a secret comes from, or what is called one.
READABLE = [
    'password = request.form["password"]',
    "password = request.form.get('password')",
    'password = request.form.get("password", "")',
    'token = "Bearer " + x',
    'token = request.headers.get("Authorization", "").removeprefix("Bearer ")',
    'headers = {"Authorization": f"Bearer {token}"}',
    "headers: { Authorization: `Bearer ${token}` }",
    'PASSWORD_FIELD = "password"',
    'API_KEY_HEADER = "X-Api-Key"',
    'SECRET_NAME = "production"',
    'TOKEN_URL = "https://example.invalid/oauth/token"',
    'token_type: str = "Bearer"',
    'PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]',
    'password = input("Enter your password: ")',
    'password = getpass.getpass("Password: ")',
    'raise ValueError("The password is too short")',
    'raise AuthError("invalid token", code="token_not_valid")',
    'errors["password"] = "The password must have eight characters."',
    '"invalid_token": "The token is invalid or has expired"',
    'api_key = os.environ["API_KEY"]',
    'api_key = os.environ.get("API_KEY")',
    "const apiKey = process.env.API_KEY;",
    "const { password } = req.body;",
    "if (typeof password === 'string') {",
    "if (typeof token !== 'undefined' && typeof kind === 'string') {",
    "password: { type: String, required: true },",
    "password: { type: 'string', minLength: 8 },",
    '"password": {"type": "string", "format": "password"}',
    'password = forms.CharField(label="Password", widget=forms.PasswordInput)',
    "password = models.CharField(_('password'), max_length=128)",
    'password = Column("password", String(128), nullable=False)',
    'fields = ["id", "username", "password", "email"]',
    "user = User.query.filter_by(token=token).first()",
    'hashed = hash_password(password, "sha256")',
    'user, password = value.split(":", 1)',
    'password = password.encode("utf-8")',
    "const [user, password] = decoded.split(':');",
    'path = reverse("password_reset")',
    "router.post('/forgot-password', forgotPassword);",
    '<input type="password" name="password" placeholder="Password">',
    '<label for="password">Password</label>',
    "<password>${db.password}</password>",
    'def test_password_is_hashed():\n    """A password is never kept in clear."""',
    'class Token:\n    """A token of the lexer."""\n\n    kind: str',
    'def check_password(password: str) -> bool:\n    """Return whether it matches."""',
    'type Credentials struct {\n\tPassword string `json:"password"`\n}',
    'password := os.Getenv("DB_PASSWORD")',
    'let key = env::var("API_KEY")?;',
    "fn check<'a>(password: &'a str, other: &'a str) -> bool {",
    "interface Login {\n  user: string;\n  password: string;\n}",
    "password: str",
    "password: string",
    "token: Token",
    "DB_PASSWORD=${DB_PASSWORD}",
    "DB_PASSWORD=$(cat /run/secrets/db)",
    "password: ${{ secrets.DB_PASSWORD }}",
    'password = "{{ db_password }}"',
    'password = "<your password>"',
    'password = ""',
    'secret = "required"',
    'if token == "(":',
    'if (token.type === "identifier") {',
    "case TokenType.String: return parse('string');",
    'const key = "users";',
    'primary_key = "id"',
    'sort_key = "created"',
    'cache_key = "users:all"',
    'for key in ("name", "email"):',
    'data["key"] = "value"',
    "const keyboard = 'qwerty';",
    "onKeyPress('Enter');",
    'compass = "north"',
    "bypass('cache')",
    "author = 'somebody'",
    "https://github.example/a/b.git",
    "git@github.example:a/b.git",
    "https://user@example.invalid/x",
    "Passwords are hashed: see below.",
    "cost is $2 a month, or $6$ more",
]


def planted(form: str, value: str, line: str = "x()") -> tuple[str, str]:
    """A form with the value in it, between lines that have nothing to do with it; and the redacted text."""
    text = f"{line}\n{form.replace('§', value)}\n{line}\n"
    return text, redact_secrets(text)[0]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("form", [*FORMS, *HELD_OUT])
def test_a_typed_secret_does_not_survive(form: str, value: str) -> None:
    text, redacted = planted(form, value)
    assert value not in redacted
    assert redacted == text.replace(value, REDACTED) or any(mark in form for mark in NEXT_TO_IT)
    assert redact_secrets(redacted) == (redacted, 0)


@pytest.mark.parametrize("value", WORDS)
@pytest.mark.parametrize("form", [*BARE, *HELD_OUT_BARE])
def test_a_secret_without_quotes_does_not_survive(form: str, value: str) -> None:
    text, redacted = planted(form, value, "# x")
    assert value not in redacted
    assert redacted == text.replace(value, REDACTED) or any(mark in form for mark in NEXT_TO_IT)
    assert redact_secrets(redacted) == (redacted, 0)


@pytest.mark.parametrize("form", LATER)
def test_a_secret_of_the_third_set_does_not_survive(form: str) -> None:
    for value in WORDS[:2]:
        text, redacted = planted(form, value)
        assert value not in redacted
        assert redacted.count("\n") == text.count("\n")
        assert redact_secrets(redacted) == (redacted, 0)


@pytest.mark.parametrize(
    "around", ["{}", "root:{}:19000:0:99999:7:::", "x = '{}'", "'{}' => 1", "me:{}"]
)
@pytest.mark.parametrize("value", HASHES)
def test_a_password_hash_does_not_survive(value: str, around: str) -> None:
    redacted, count = redact_secrets(around.format(value))
    assert value[-12:] not in redacted
    assert count == 1


@pytest.mark.parametrize("text", READABLE)
def test_code_about_secrets_comes_through(text: str) -> None:
    assert redact_secrets(text) == (text, 0)


ONE_LINE = [form for form in [*FORMS, *HELD_OUT] if "\n" not in form]


@pytest.mark.parametrize("form", ONE_LINE)
def test_a_typed_secret_does_not_survive_what_it_stands_in(form: str) -> None:
    line = form.replace("§", "swordfish")
    for text in (
        *(f"{mark}{line}" for mark in ("# ", "// ", "+", "-", "    ", "12: ", " * ", "web_1 | ")),
        f"{line}  # a comment's end",
        f"```\n{line}\n```",
        json.dumps({"old": f"a()\n{line}\nb()"}),
        json.dumps([json.dumps({"old": f"a()\n{line}\nb()"})]),
        repr(f"a()\n{line}\nb()"),
    ):
        assert "swordfish" not in redact_secrets(text)[0], text


@pytest.mark.parametrize(
    ("suffix", "forms"), [(".py", PYTHON), (".js", JAVASCRIPT), (".ts", TYPESCRIPT)]
)
def test_what_is_left_is_still_code(suffix: str, forms: list[str]) -> None:
    for form in forms:
        text, redacted = planted(form, VALUES[0])
        assert first_error_line(text, suffix) is None, form
        assert first_error_line(redacted, suffix) is None, redacted


@settings(deadline=None)
@given(st.lists(st.sampled_from([*FORMS, *HELD_OUT, *READABLE]), max_size=9), st.data())
def test_typed_secrets_do_not_survive_among_other_code(
    forms: list[str], data: st.DataObject
) -> None:
    joint = data.draw(st.sampled_from(["\n", "\n\n", "\nx = 1\n"]))
    text = joint.join(form.replace("§", "swordfish") for form in forms) + "\n"
    redacted, _ = redact_secrets(text)
    assert "swordfish" not in redacted
    assert redacted.count("\n") == text.count("\n")
    assert redact_secrets(redacted) == (redacted, 0)


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "password=",
            "password = [",
            'password = "',
            "password(a, b, ",
            "secrets:\n  ",
            "password ",
        ),
        *(
            '\\\\"password\\\\": ',
            'password = \\\\"',
            "token<a,",
            "password: /* ",
            "<password ",
            "auth=(a, ",
        ),
    ],
)
def test_a_hostile_text_is_read_in_steps_as_many_as_it_is_long(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    reader = named_values._Reader(text.encode())
    for match in named_values._names().finditer(text.encode()):
        reader.read(*match.span())
    assert reader._steps_left >= -2 * named_values._MAX_VALUE_BYTES
    spaces = "password" + " " * 200_000
    assert redact_secrets(spaces) == (spaces, 0)


def test_beyond_the_steps_what_is_next_to_a_name_goes() -> None:
    text = "password = [" * 20_000 + "\nAPI_KEY = 'swordfish'\n"
    assert "swordfish" not in redact_secrets(text)[0]
