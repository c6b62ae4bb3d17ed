// The npm package `oidc-provider` on a free port, for one client. Its arguments are the directory
// that contains `node_modules`, and the client's callback. It prints its issuer, and exits when its
// standard input ends. The name that a user types at the sign-in becomes their address.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [packages, callback] = process.argv.slice(2);
const require = createRequire(`${packages}/package.json`);
const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')).href);

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: 'svc', client_secret: 'a:secret/of+tests', redirect_uris: [callback] }],
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'] },
    pkce: { required: () => true },
    cookies: { keys: ['only for tests'] },
    findAccount: (_context, id) => ({
      accountId: id,
      claims: () => ({ sub: id, email: id, email_verified: true, name: 'Somebody' }),
    }),
  });
  server.on('request', provider.callback());
  console.log(issuer);
});
process.stdin.on('end', () => process.exit(0)).resume();
