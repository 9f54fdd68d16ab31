"""Parts of Horizon's own pages of servers and volumes: tabs, row actions, durability."""
