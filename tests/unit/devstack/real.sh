# shellcheck shell=bash
# A checkout of DevStack in place of the stand-in: its functions, its files of Nova, Cinder, Glance.

TOP_DIR=$DEVSTACK_DIR
FILES=$TOP_DIR/files
mine=(DEST DATA_DIR DEVSTACK_VENV SERVICE_PASSWORD STACK_USER SERVICE_HOST HOST_IP)
mine+=(RABBIT_PASSWORD RABBIT_HOST DEVSTACK_PLUGINS ENABLED_SERVICES PYTHON)
kept=$(declare -p "${mine[@]}")
set +o errexit
source "$TOP_DIR/stackrc"
eval "$kept"
GetDistro
source "$TOP_DIR/lib/tls"
source "$TOP_DIR/lib/infra"
source "$TOP_DIR/lib/database"
source "$TOP_DIR/lib/rpc_backend"
source "$TOP_DIR/lib/keystone"
source "$TOP_DIR/lib/apache"
source "$TOP_DIR/lib/horizon"
set -o errexit

# What asks OpenStack, installs or builds is noted; the rest is DevStack's.
function install_package { note install_package "$@"; }
function pip_install { note pip_install "$@"; }
function setup_develop { note setup_develop "$@"; }
function create_service_user { note create_service_user "$@"; }
function get_or_create_service { note get_or_create_service "$@"; }
function get_or_create_endpoint { note get_or_create_endpoint "$@"; }
function recreate_database { note recreate_database "$@"; }
function database_connection_url { echo "sqlite:///$DATA_DIR/$1.sqlite"; }
function apache_site_config_for { echo "$SANDBOX/etc/apache-$1.conf"; }
function enable_apache_site { note apache enable "$1"; }
function disable_apache_site { note apache remove "$1"; }
function restart_apache_server { :; }

function source_libraries {
    local library
    for library in glance nova cinder etcd3; do
        source "$TOP_DIR/lib/$library"
    done
}
