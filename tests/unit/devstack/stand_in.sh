# shellcheck shell=bash disable=SC2034,SC2154
# What DevStack gives a plugin, as far as ours uses it: the names are DevStack's, what they do here
# is as little as the tests need. Whatever else the plugin called would not be found.

declare -A GITDIR=()
GLOBAL_VENV=True
SERVICE_DOMAIN_NAME=Default
SERVICE_PROJECT_NAME=service
REGION_NAME=RegionOne
INSTANCE_NAME_PREFIX=instance-
ETCD_PORT=2379
SYSTEMCTL="sudo systemctl"
KEYSTONE_SERVICE_URI=http://$SERVICE_HOST/identity
SERVICE_PROTOCOL=http
HORIZON_DIR=$DEST/horizon

# What lib/nova, lib/cinder and lib/glance define.
function source_libraries {
    NOVA_CONF_DIR=/etc/nova NOVA_CONF=/etc/nova/nova.conf NOVA_CPU_CONF=/etc/nova/nova-cpu.conf
    NOVA_FILTERS=ComputeFilter,SameHostFilter
    CINDER_CONF=/etc/cinder/cinder.conf
    GLANCE_API_CONF=/etc/glance/glance-api.conf
    CINDER_ENABLED_BACKENDS=${CINDER_ENABLED_BACKENDS:-lvm:lvmdriver-1}
}

function die { echo "die: ${*:2}" >&2; exit 1; }
function echo_summary { echo "$*"; }
function define_plugin { :; }
function is_plugin_enabled { [[ ,$DEVSTACK_PLUGINS, == *",$1,"* ]]; }
function is_service_enabled {
    local service
    for service in "$@"; do
        [[ ,$ENABLED_SERVICES, == *",$service,"* ]] && return 0
    done
    return 1
}
function enable_service {
    local service
    for service in "$@"; do
        [[ ,$DISABLED_SERVICES, == *",$service,"* ]] || is_service_enabled "$service" ||
            ENABLED_SERVICES+=,$service
    done
}
function trueorfalse {
    case ${!2:-} in
        1|[yY]es|[tT]rue|TRUE) echo True ;;
        0|[nN]o|[fF]alse|FALSE) echo False ;;
        *) echo "$1" ;;
    esac
}
function ipv6_unquote { tr -d '[]' <<<"$1"; }
function get_python_exec_prefix { echo "$DEVSTACK_VENV/bin"; }
function install_package { note install_package "$@"; }
function pip_install { note pip_install "$@"; }
function setup_develop { note setup_develop "$@"; }
function create_service_user { note create_service_user "$@"; }
function get_or_create_service { note get_or_create_service "$@"; }
function get_or_create_endpoint { note get_or_create_endpoint "$@"; }
function recreate_database { note recreate_database "$@"; }
function database_connection_url { echo "sqlite:///$DATA_DIR/$1.sqlite"; }
function test_with_retry { sh -c "$1" >/dev/null || die 0 "$2"; }

# Have a section hold these values of an option, and no other.
function ini_write {
    local file=$1 text
    text=$(awk -v section="[$2]" -v option="$3" -v values="$4" '
        function add() { n = split(values, each, " "); if (!done && is_in)
            for (i = 1; i <= n; i++) print option " = " each[i]; done = done || is_in }
        /^\[/ { is_in = $0 == section; print; add(); next }
        is_in && $1 == option { next }
        { print }
        END { if (!done) { print "\n" section; is_in = 1; add() } }' \
        "$file" 2>/dev/null || printf '\n[%s]\n%s = %s\n' "$2" "$3" "$4")
    printf '%s\n' "$text" >"$file"
}
function iniset { ini_write "$@"; }
function iniset_multiline { ini_write "$1" "$2" "$3" "${*:4}"; }
function iniget_multiline {
    awk -v section="[$2]" -v option="$3" '
        /^\[/ { is_in = $0 == section }
        is_in && $1 == option { sub(/^[^=]*= */, ""); printf "%s ", $0 }' "$1" | sed 's/ $//'
}
function iniget { iniget_multiline "$@"; }
function configure_keystone_authtoken_middleware {
    iniset "$1" "$3" auth_type password
    iniset "$1" "$3" username "$2"
    iniset "$1" "$3" password "$SERVICE_PASSWORD"
    iniset "$1" "$3" service_type "$4"
}
function apache_site_config_for { echo "$SANDBOX/etc/apache-$1.conf"; }
function write_uwsgi_config {
    rm -f "$1"
    iniset "$1" uwsgi module "$2"
    note apache ProxyPass "$3" "$5"
}
function remove_uwsgi_config { rm -f "$1"; note apache remove "$2"; }
function iniset_rpc_backend {
    iniset "$2" DEFAULT transport_url "rabbit://stackrabbit:secret@$SERVICE_HOST:5672/"
}

function run_process {
    is_service_enabled "$1" || return 0
    local unit="$SYSTEMD_DIR/devstack@$1.service"
    printf '[Service]\nUser=%s\nExecStart=%s\n' "${4:-$STACK_USER}" "$2" >"$unit"
    $SYSTEMCTL enable "devstack@$1.service"
    $SYSTEMCTL start "devstack@$1.service"
}
function stop_process {
    ! is_service_enabled "$1" || $SYSTEMCTL stop "devstack@$1.service"
}

function plugin_override_defaults { source "${GITDIR[acstor]}/devstack/override-defaults"; }
function load_plugin_settings { source "${GITDIR[acstor]}/devstack/settings"; }
function run_phase { source "${GITDIR[acstor]}/devstack/plugin.sh" "$@"; }
