// The npm package `oidc-provider` on a free port, for one client. Its arguments are the directory
// that contains `node_modules`, the address of the platform, and options as JSON: the claims of each
// scope, and the claims of a user, in which `$id` is the name that the user types at the sign-in. It
// prints its issuer, and exits when its standard input ends.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [packages, platform, text] = process.argv.slice(2);
const options = JSON.parse(text);
const require = createRequire(`${packages}/package.json`);
const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')).href);

const ofUser = (id) => JSON.parse(JSON.stringify(options.user).replaceAll('$id', id));

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: 'svc',
      client_secret: 'a:secret/of+tests',
      redirect_uris: [`${platform}/login/openid/callback`],
      ...(options.logout && {
        post_logout_redirect_uris: [`${platform}/login/openid/signed-out`],
        backchannel_logout_uri: `${platform}/login/openid/back-channel-logout`,
        backchannel_logout_session_required: true,
      }),
    }],
    claims: options.claims,
    features: {
      backchannelLogout: { enabled: Boolean(options.logout) },
      rpInitiatedLogout: { enabled: Boolean(options.logout) },
    },
    // Its own client refuses addresses on this machine, where the platform of a test is.
    fetch: (url, { dispatcher, ...others }) => fetch(url, others),
    pkce: { required: () => true },
    cookies: { keys: ['only for tests'] },
    findAccount: (_context, id) => ({
      accountId: id,
      claims: () => ({ sub: id, ...ofUser(id) }),
    }),
  });
  server.on('request', provider.callback());
  console.log(issuer);
});
process.stdin.on('end', () => process.exit(0)).resume();
